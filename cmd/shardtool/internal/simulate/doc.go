// Package simulate walks through one epoch of an order without reading samples. It counts what a
// training job would meet: steps, samples that are repeated or missing, how well batches are mixed,
// which blocks every node reads, and what the store must deliver for a given rate.
//
//	plan, labels ──▶ walk: every global batch ──▶ World: what ranks get, and the blocks they read
//	             ──▶ uniformity.Meter: label counts ──▶ Mixing
//	World, Job ──▶ Needs: bytes, requests and hours per epoch
//
// [Labels] gives the samples of a data set the labels that mixing is measured by.
package simulate
