// Package tune decides how far ahead a stream reads: how many requests it keeps in flight, and how
// many batches it plans before the consumer takes them. Neither changes a batch or the order.
//
//	consumer, workers, planner -> Meters, Load -> Loop -> Measure -> Tuner -> Decision
//	Decision -> Gate (requests in flight), Ahead (batches ahead)
//
// Meters count what the consumer and the workers did, and Load what the order needs. At intervals
// the Loop takes the difference as a Measure, has the Tuner decide, and applies the decisions. The
// Tuner is a pure function of the measures so far.
package tune
