package heapsize

import "unsafe"

// addressOf returns where the bytes of a text are. It is compared and never read through.
func addressOf(text string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(text))) }
