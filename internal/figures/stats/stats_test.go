package stats

import (
	"reflect"
	"testing"
	"time"
)

// TestStalls: All, Total and Sub know every cause.
func TestStalls(t *testing.T) {
	var s, before Stalls
	v, b := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&before).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(10 << i))
		b.Field(i).SetInt(int64(1 << i))
	}
	since := reflect.ValueOf(s.Sub(before))
	names, i := map[string]bool{}, 0
	for name, d := range s.All() {
		if d != time.Duration(10<<i) || since.Field(i).Int() != 9<<i {
			t.Errorf("%s: %d, since %d, for field %s", name, d, since.Field(i).Int(), v.Type().Field(i).Name)
		}
		names[name] = true
		i++
	}
	if len(names) != v.NumField() || s.Total() != time.Duration(10<<v.NumField()-10) {
		t.Errorf("%d names of %d causes, total %d", len(names), v.NumField(), s.Total())
	}
}
