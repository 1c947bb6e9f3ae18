package local

import "golang.org/x/sys/unix"

// expectStep is what one call asks for. The kernel cuts a larger one to what the device takes at a
// time, from 512 KiB on.
const expectStep = 512 << 10

// Expect starts to read a range into the page cache, so that the reads of many ranges overlap and
// the kernel reads nothing around them. Without it, a read of 1 MB at a random offset brings as
// much as the read-ahead of the device: 8 MB on some. A range whose middle is in the cache is left
// as it is. Expect is a hint, so errors are ignored.
func (o *object) Expect(off, n int64) {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		page, cached := unix.CachestatRange{Off: uint64(off + n/2), Len: 1}, unix.Cachestat_t{}
		if err := unix.Cachestat(uint(fd), &page, &cached, 0); err == nil && cached.Cache > 0 {
			return // which asking again would cost 12 µs a MB
		}
		for end := off + n; off < end; off += expectStep {
			_ = unix.Fadvise(int(fd), off, min(expectStep, end-off), unix.FADV_WILLNEED)
		}
	})
}
