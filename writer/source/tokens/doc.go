// Package tokens reads token ids as samples for the training of language models: arrays are cut
// into samples of a fixed length, and documents are joined into such samples.
//
//	src, err := tokens.NewArrays(ctx, inputs, tokens.Options{Length: 2048})
//	src, err := tokens.NewJoin(documents, tokens.JoinOptions{Length: 2048, Separator: []int64{0}})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// A sample holds its tokens in a field that NumPy reads, tokens.npy. No token is lost, repeated or
// changed: an id that the type of the samples cannot hold is an error with its position.
//
// # Arrays
//
// NewArrays reads no ids. Next returns which bytes a sample consists of, and the writer's workers
// read and convert them. Neighbouring samples share one read of 1 MiB, or of 8 MiB from remote
// stores, so that a sample of 4 KiB does not cost a request.
//
// With Options.Rows, each row of arrays of any type is a sample, unchanged but for the order of
// bytes. The arrays of a .npz file are the fields of one row; they are read from front to back,
// side by side.
//
// # Documents
//
// NewJoin reads one document after the other from a source and concatenates their tokens, each
// followed by the separator. A second field of the sample, documents.json, records which parts of
// which documents it holds: see [MapField]. Memory holds one sample and one document of up to 16
// MiB; larger ones are streamed. If documents are remote, up to 64 of them are prefetched, about 64
// MiB in total.
package tokens
