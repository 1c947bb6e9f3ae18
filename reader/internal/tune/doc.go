// Package tune decides how far ahead a stream reads: how many requests it keeps in flight, and how
// many batches it plans before the consumer takes them. Neither changes a batch or the order.
//
//	consumer, workers, planner -> Meters, Load -> Loop -> Measure -> Tuner -> Decision
//	Decision -> Gate (requests in flight), Ahead (batches ahead)
//
// Meters count what the consumer and the workers did, and Load what the order needs. At intervals
// the Loop takes the difference as a Measure, has the Tuner decide, and applies the decisions. The
// Tuner is a pure function of the measures so far.
//
// Why there is a tuner and no fixed number of requests: the seconds that a stream of 300 MB takes
// over the networks of BenchmarkTuned in package reader (2 CPUs, the median of three runs in turn,
// wide once), to a consumer that takes batches at once and to one with a step of 50 ms. A network
// has the time to the first byte, the bytes per second of a request, and of all together; quota
// refuses more than 12 requests at a time. The first column is the tuner, which begins with 64. The
// network near is left out: all its numbers of requests take 0.82 s, and its first run in a process
// measures the memory. Other programs loaded the machine in the last of the three runs.
//
//	network                      step    tuner  16     32     64     256
//	bench   30 ms  200 M  200 M  0       1.69   1.69   1.69   1.69   1.69
//	                             50 ms   5.32   5.20   5.03   5.08   5.03
//	region  80 ms   40 M  300 M  0       1.31   1.46   1.31   1.31   1.31
//	                             50 ms   5.14   5.45   5.28   5.19   5.29
//	far    250 ms   10 M  150 M  0       2.89   4.74   3.02   2.89   2.89
//	                             50 ms   5.84   6.88   6.09   5.83   5.79
//	narrow  60 ms   10 M   25 M  0      12.98  12.98  12.98  12.98  12.98
//	                             50 ms  13.43  13.28  13.28  13.31  13.28
//	quota   60 ms   40 M  300 M  0       4.20   1.80   2.78   5.85   6.89
//	                             50 ms   8.41   6.49   7.54  10.46   8.70
//	wide   250 ms   40 M 1000 M  0       1.38          1.92   1.33
//
// 32 is within 5 % of the tuner in all networks but the last, where it takes 39 % longer; 64 is
// within 5 % in all but quota, where it takes up to 39 % longer. No fixed number does for both.
package tune
