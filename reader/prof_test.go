package reader
import ("testing";"runtime")
func BenchmarkProf(b *testing.B) {
	text := pack(b, "text")
	runtime.GOMAXPROCS(1)
	f := readSamples(text, Options{Workers: 1})
	for b.Loop() { f(b) }
}
