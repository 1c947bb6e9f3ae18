// Package tokens makes samples of token ids, as training of language models reads them: arrays cut into samples of a fixed length,
// and documents joined into such samples.
//
//	src, err := tokens.NewArrays(ctx, inputs, tokens.Options{Length: 2048})                    // .npy files, raw files
//	src, err := tokens.NewJoin(documents, tokens.JoinOptions{Length: 2048, Separator: []int64{0}}) // any source of documents
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// A sample has its tokens in a field that NumPy reads, tokens.npy. No token is lost, none comes twice, and none changes: an id that
// the type of the samples has no room for is an error that says where it is.
//
// # Arrays
//
// Arrays leaves files where they are: Next only says which bytes a sample is made of, and the writer's workers read and convert
// them. Neighbouring samples come in one read of 1 MiB, of 8 MiB from remote stores, so that a sample of 4 KiB costs no request of
// its own.
//
// # Documents
//
// Join asks a source for one document after the other and lays their tokens end to end, each followed by the separator. The sample that
// this fills says in a second field, documents.json, which parts of which documents it holds: see [MapField]. What is held is one sample
// and one document of up to 16 MiB; larger ones are streamed. Where documents come from afar, up to 64 of them are read ahead, 64 MiB or so
// together.
package tokens
