package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// headerBytes is the length of a frame header, which has the length of the payload.
const headerBytes = 4

// maxBatchBytes bounds a batch: 10,000 pods with a kilobyte each are 10 MiB, and the worker needs several times as much.
const maxBatchBytes = 24 << 20

// maxAnswerBytes bounds an answer: the document, the message and the details of a verdict have bounds of their own.
const maxAnswerBytes = 256 << 10

var errFrameTooLarge = errors.New("the message is too large")

// newFrame returns an empty frame, to which a payload is appended.
func newFrame(buffer []byte) []byte { return append(buffer[:0], 0, 0, 0, 0) }

// sealed returns a frame with the length of its payload in its header.
func sealed(frame []byte) []byte {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headerBytes)) //nolint:gosec // it is far below 4 GiB
	return frame
}

// frames reads frames.
type frames struct {
	from io.Reader
	most int

	buffer     []byte
	start, end int
}

// next returns the payload of the next frame, which is valid until the next call.
func (f *frames) next() ([]byte, error) {
	for {
		payload, missing, err := f.buffered()
		if err != nil || missing == 0 {
			return payload, err
		}
		f.grow(missing)
		read, err := f.from.Read(f.buffer[f.end:])
		f.end += read
		if read == 0 && err != nil {
			return nil, err
		}
	}
}

// buffered returns the payload of the next frame, or how many bytes of it are missing.
func (f *frames) buffered() (payload []byte, missing int, err error) {
	held := f.end - f.start
	if held < headerBytes {
		return nil, headerBytes - held, nil
	}
	size := int(binary.LittleEndian.Uint32(f.buffer[f.start:]))
	if size > f.most {
		return nil, 0, fmt.Errorf("%w: %d bytes", errFrameTooLarge, size)
	}
	if held < headerBytes+size {
		return nil, headerBytes + size - held, nil
	}
	payload = f.buffer[f.start+headerBytes : f.start+headerBytes+size]
	f.start += headerBytes + size
	return payload, 0, nil
}

// grow makes room for more bytes.
func (f *frames) grow(missing int) {
	const least = 16 << 10
	if len(f.buffer)-f.end >= missing {
		return
	}
	held := f.buffer[f.start:f.end]
	if len(f.buffer)-len(held) < missing {
		f.buffer = make([]byte, max(least, len(held)+missing))
	}
	f.start, f.end = 0, copy(f.buffer, held)
}
