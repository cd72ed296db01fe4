// Package runtimeapi is a client of HAProxy's Runtime API: a line of text to a socket,
// and text back until HAProxy closes the connection.
//
// It has the commands that add, drain, watch and remove the servers of a backend (HAProxy
// 2.6 or newer; the socket must have level admin). Every call opens its own connection, so
// nothing must be recovered after a restart of HAProxy.
package runtimeapi
