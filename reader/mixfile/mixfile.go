// Package mixfile reads mix files: YAML, or JSON, which names the sources of a mix, their shares
// and how these change. The caller opens the data sets with reader.OpenSources.
//
//	sources:
//	  web:  {data: "s3://bucket/web#clean", weight: 0.6}
//	  code: {data: "s3://bucket/code", weight: 0.3, max_epochs: 4}
//	  math: {data: "/data/math", where: "score >= 3", weight: 0.1}
//	epoch: 10_000_000
//	segments:
//	  - {at: 50_000_000, weights: {web: 0.3, code: 0.3, math: 0.4}}
package mixfile
