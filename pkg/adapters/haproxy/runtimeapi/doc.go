// Package runtimeapi speaks the Runtime API of HAProxy: a line of text to a socket, and
// text back until HAProxy closes the connection.
//
// It knows the commands that add, drain, watch and remove the servers of a backend
// (HAProxy 2.6 or newer; the socket must have level admin). Every call opens a connection
// of its own, so nothing has to be mended after HAProxy was restarted.
package runtimeapi
