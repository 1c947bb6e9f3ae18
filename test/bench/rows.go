package main

import (
	"fmt"

	"github.com/shardtool/shardtool/test/proxy"
)

// throttled compares clients on a network with delays, slow connections and a limit on the total
// rate.
func (b *bench) throttled() error {
	if err := b.proxy.Set(b.network()); err != nil {
		return err
	}
	bare, err := b.bare(b.proxy.URL)
	if err != nil {
		return err
	}
	for _, size := range []int{8 << 20, 1 << 20} {
		// Each with its own store, because its estimates from 8 MiB do not suit 1 MiB.
		ours, err := b.ours(b.proxy.URL, true)
		if err != nil {
			return err
		}
		all := pieces(b.mib, size)
		bytes := int64(len(all)) * int64(size)
		b.proxy.ResetCounts()
		rates, err := b.rates(bytes, func() error { return ours(all) }, func() error { return bare(all) })
		if err != nil {
			return err
		}
		goal := map[int]float64{8 << 20: 0.95, 1 << 20: 0.85}[size]
		b.AtLeast("throttled", fmt.Sprintf("ranges of %d MiB, every byte checked / cap", size>>20),
			rates[0].By(float64(b.total)), "x", goal,
			fmt.Sprintf("%s; bare client, nothing checked, %s; %d requests in flight at most", mbs(rates[0].Median()),
				mbs(rates[1].Median()), b.proxy.Counts().MaxInFlight))
		if size == 8<<20 {
			if err := b.managers(ours, all, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// managers compares with the SDK's downloads: one object at a time, and four.
func (b *bench) managers(ours client, all []piece, bytes int64) error {
	one, four := b.manager(b.proxy.URL, 1), b.manager(b.proxy.URL, 4)
	rates, err := b.rates(bytes,
		func() error { return ours(all) }, func() error { return one(all) }, func() error { return four(all) })
	if err != nil {
		return err
	}
	b.AtLeast("throttled", "ranges of 8 MiB / transfermanager, object after object", rates[0].Over(rates[1]), "x", 2.5,
		fmt.Sprintf("%s against %s: objects of %d MiB in parts of 8 MiB, concurrency %d", mbs(rates[0].Median()),
			mbs(rates[1].Median()), objectSize>>20, b.inFlight))
	b.Info("throttled", "ranges of 8 MiB / transfermanager, 4 objects at once", rates[0].Over(rates[2]), "x",
		fmt.Sprintf("%s against %s: concurrency %d each", mbs(rates[0].Median()), mbs(rates[2].Median()), b.inFlight/4))
	return nil
}

// faults compares the store with itself on the same network without faults.
func (b *bench) faults() error {
	all := pieces(b.mib, 8<<20)
	bytes := int64(len(all)) * 8 << 20
	for _, f := range []struct {
		name   string
		faults proxy.Faults
		goal   float64
	}{
		{"10 % of answers reset in mid-body", proxy.Faults{Reset: 0.10}, 0.95},
		{"5 % stall, before or in the body", proxy.Faults{StallHeaders: 0.025, StallBody: 0.025}, 0.85},
		{"5 % answered 503", proxy.Faults{Busy: 0.05}, 0.9},
	} {
		ours, err := b.ours(b.proxy.URL, true)
		if err != nil {
			return err
		}
		under := func(faults proxy.Faults) func() error {
			seed := uint64(0)
			return func() error {
				seed++
				network := b.network()
				network.Faults, network.Seed = faults, seed
				if err := b.proxy.Set(network); err != nil {
					return err
				}
				return ours(all)
			}
		}
		b.proxy.ResetCounts()
		rates, err := b.rates(bytes, under(f.faults), under(proxy.Faults{}))
		if err != nil {
			return err
		}
		counts := b.proxy.Counts()
		b.AtLeast("faults", f.name+" / none", rates[0].Over(rates[1]), "x", f.goal,
			fmt.Sprintf("%s against %s, every byte checked; %d faults in %d requests",
				mbs(rates[0].Median()), mbs(rates[1].Median()), counts.Faults(), counts.Methods["GET"].Requests))
	}
	return nil
}

// loopback compares with the bare client on the server itself, where the machine's cores are the
// limit.
func (b *bench) loopback() error {
	bare, err := b.bare(b.server.Endpoint)
	if err != nil {
		return err
	}
	for _, size := range []int{8 << 20, 1 << 20} {
		ours, err := b.ours(b.server.Endpoint, false)
		if err != nil {
			return err
		}
		all := pieces(b.mib, size)
		rates, err := b.rates(int64(len(all))*int64(size),
			func() error { return ours(all) }, func() error { return bare(all) })
		if err != nil {
			return err
		}
		b.AtLeast("loopback", fmt.Sprintf("ranges of %d MiB, no proxy / bare client", size>>20),
			rates[0].Over(rates[1]), "x", 0.9,
			fmt.Sprintf("%s against %s; client and server share the cores", mbs(rates[0].Median()),
				mbs(rates[1].Median())))
	}
	return nil
}
