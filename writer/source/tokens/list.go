package tokens

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/shardtool/shardtool/format"
)

// listReader parses a JSON list of integers.
type listReader struct {
	streamed
	to  DType
	buf []byte
	i   int // bytes of buf that were consumed
	end bool
	at  int64 // elements parsed
}

// openList begins to parse a list. n is -1: ids may not fit.
func (j *joinSource) openList(c *content) (_ idReader, n int64, err error) {
	r := &listReader{to: j.opt.DType, buf: c.data, end: c.payload == nil}
	if c.payload != nil {
		r.in, err = c.payload.Open(c.ctx)
		r.buf = make([]byte, 0, 64<<10)
	}
	return r, -1, err
}

// peek returns the next byte, or io.EOF.
func (r *listReader) peek() (byte, error) {
	for r.i == len(r.buf) {
		if r.end {
			return 0, io.EOF
		}
		n, err := r.in.Read(r.buf[:cap(r.buf)])
		r.buf, r.i = r.buf[:n], 0
		if errors.Is(err, io.EOF) {
			r.end = true
		} else if err != nil {
			return 0, err
		}
	}
	return r.buf[r.i], nil
}

// mark skips white space and returns the next byte.
func (r *listReader) mark() (byte, error) {
	for {
		c, err := r.peek()
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
		r.i++
	}
}

// bad returns the error of an unexpected byte or of reading.
func (r *listReader) bad(c byte, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the JSON list is truncated after %d elements", format.ErrCorrupt, r.at)
	case err != nil:
		return err
	case r.at == 0 && c == '{':
		return errors.New("it is a JSON object: give a list of integers")
	}
	return fmt.Errorf("element %d of the JSON list is not an integer, but %q", r.at, c)
}

// next returns the next element. more is false at the end of the list, which must end the content.
func (r *listReader) next() (id int64, more bool, err error) {
	c, err := r.mark()
	switch {
	case r.at == 0 && err == nil && c == '[':
		r.i++
		if c, err = r.mark(); err == nil && c == ']' {
			return 0, false, r.last()
		}
	case r.at > 0 && err == nil && c == ',':
		r.i++
		c, err = r.mark()
	case r.at > 0 && err == nil && c == ']':
		return 0, false, r.last()
	default:
		return 0, false, r.bad(c, err)
	}
	if err != nil {
		return 0, false, r.bad(c, err)
	}
	id, err = r.integer()
	r.at++
	return id, err == nil, err
}

// last consumes the closing bracket, which must end the content.
func (r *listReader) last() error {
	r.i++
	c, err := r.mark()
	if err == nil {
		return fmt.Errorf("%w: %q follows the JSON list", format.ErrCorrupt, c)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (r *listReader) integer() (int64, error) {
	negative, digits := false, 0
	value := uint64(0)
	for {
		c, err := r.peek()
		switch {
		case err != nil && (digits == 0 || !errors.Is(err, io.EOF)):
			return 0, r.bad(c, err)
		case err == nil && c == '-' && digits == 0 && !negative:
			negative = true
			r.i++
			continue
		case err == nil && c >= '0' && c <= '9':
			if value > (math.MaxInt64-uint64(c-'0'))/10 {
				return 0, &misfit{at: r.at, id: fmt.Sprintf("%d%c…", value, c), to: r.to}
			}
			value = 10*value + uint64(c-'0')
			digits++
			r.i++
			continue
		case digits == 0 || err == nil && c != ',' && c != ']' && c != ' ' && c != '\n' && c != '\t' && c != '\r':
			return 0, r.bad(c, nil)
		}
		id := int64(value)
		if negative {
			id = -id
		}
		if !r.to.fits(id) {
			return 0, &misfit{at: r.at, id: fmt.Sprint(id), to: r.to}
		}
		return id, nil
	}
}

func (r *listReader) append(dst []byte, n int64) ([]byte, error) {
	for range n {
		id, more, err := r.next()
		if err == nil && !more {
			err = fmt.Errorf("%w: it had more tokens earlier", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return dst, err
		}
		dst = r.to.append(dst, id)
	}
	return dst, nil
}

func (r *listReader) count() (n int64, err error) {
	for {
		_, more, err := r.next()
		if err != nil || !more {
			return n, err
		}
		n++
	}
}
