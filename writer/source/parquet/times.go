package parquet

import (
	"encoding/binary"
	"math"
	"time"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

func unitOf(u schema.TimeUnitType) time.Duration {
	switch u {
	case schema.TimeUnitMillis:
		return time.Millisecond
	case schema.TimeUnitMicros:
		return time.Microsecond
	}
	return time.Nanosecond
}

// instant returns the time of a date or timestamp.
func (s scalar) instant(v value) time.Time {
	switch s.class {
	case classDate:
		return time.Unix(int64(int32(v.u))*86400, 0).UTC()
	case classLegacyTime: // nanoseconds of the day and the Julian day
		const epoch = 2440588 // Julian day of 1970-01-01
		nanos, day := legacy(v)
		return time.Unix((int64(day)-epoch)*86400+int64(nanos/1e9), int64(nanos%1e9)).UTC()
	}
	perSecond := int64(time.Second / s.unit)
	n := int64(v.u)
	seconds := n / perSecond
	if n%perSecond < 0 {
		seconds--
	}
	return time.Unix(seconds, (n-seconds*perSecond)*int64(s.unit)).UTC()
}

// legacy returns the nanoseconds of the day and the Julian day of a 96-bit timestamp.
func legacy(v value) (nanos uint64, day uint32) {
	return binary.LittleEndian.Uint64(v.b), binary.LittleEndian.Uint32(v.b[8:])
}

// checkTime refuses a time outside of a day, and 96-bit timestamps out of range. Writers whose
// numbers overflowed leave such values, and any text of them would be another time.
func (l *leafType) checkTime(v value) error {
	s := l.scalar
	switch s.class {
	case classTime:
		if n := l.ofDay(v); n < 0 || n >= int64(24*time.Hour/s.unit) {
			return corruptf("it has a time of %d times %v, which is no time of a day", n, s.unit)
		}
	case classLegacyTime:
		if nanos, day := legacy(v); nanos >= uint64(24*time.Hour) || day > math.MaxInt32 {
			return corruptf("it has a 96-bit timestamp at %d nanoseconds of the Julian day %d, which is no time", nanos, day)
		}
	}
	return nil
}

// ofDay returns a time of day in its unit.
func (l *leafType) ofDay(v value) int64 {
	if l.physical == pq.Types.Int32 {
		return int64(int32(v.u))
	}
	return int64(v.u)
}
