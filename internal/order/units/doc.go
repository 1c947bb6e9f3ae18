// Package units forms units out of the samples of an order: packed sequences of several samples, or
// micro-batches of samples of similar length. With units, the positions of an epoch count units.
// SPEC.md, "Units", is the contract.
//
// The lengths of the samples decide everything, and they are known before any sample is read. So
// packing is a function of the data set, the parameters and the epoch: it is the same on any number
// of ranks, and a job resumes at any unit.
//
//	order.Plan, lengths, Params ──New──▶ Units                 immutable
//	Units ──Plan(epoch)──▶ Plan                                the units of each window, counted
//	Units, Plans ──Seek(epoch, position)──▶ Cursor ──NextBatch──▶ []order.Ref, order.Batch with Cuts
//	Units ──Checkpoint──▶ order.Checkpoint ──Fits──▶ Units
//
// How an epoch is ordered: every lane of the order is cut into windows of Ω samples. The samples of
// a window, or their pieces, form units; the units of a window are shuffled. The units of all
// lanes, end to end, are a line, and the line is cut into V arcs of equal length. Positions take
// the arcs in turn, as positions of samples take the lanes.
//
//	lane     s s s s s s s s | s s s s s s s s | s s s      Ω = 8
//	          best fit          best fit         best fit
//	line     [s ss][sss][ss]  [ss s][s ss][ss]  [sss]  ...  cut into arcs
//
// A Plan costs one pass over the lengths of an epoch, in the order of the epoch. It holds 8 bytes
// for each window. Nothing else here is proportional to the samples, except for the lengths.
//
// The package reads nothing and has no clock. Plan uses several goroutines; the result does not
// depend on them.
package units
