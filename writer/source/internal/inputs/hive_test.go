package inputs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// TestHive: folders of the form key=value directly above a file are columns, integers if all are.
func TestHive(t *testing.T) {
	for _, c := range []struct {
		paths []string
		where string
		want  []string // a line for each file that is kept
	}{
		{[]string{"d/a.csv", "x=1.csv"}, "", []string{"", ""}},
		{[]string{"d/year=2020/month=01/a.csv"}, "", []string{"year:2020 month:1"}},
		{[]string{"exp=3/d/year=-7/a.csv"}, "", []string{"year:-7"}},
		{[]string{"y=1/a.csv", "y=b/a.csv", "y=007/a.csv"}, "", []string{"y:\"1\"", "y:\"b\"", "y:\"007\""}},
		{[]string{"y=__HIVE_DEFAULT_PARTITION__/a.csv", "y=9223372036854775807/a.csv", "z=1/a.csv"}, "", []string{"y:null z:null", "y:9223372036854775807 z:null", "y:null z:1"}},
		{[]string{"a%3Db=c%2Fd%20/a.csv", "a%3Db=%zz/a.csv", "a%3Db=/a.csv"}, "", []string{"a=b:\"c/d \"", "a=b:\"%zz\"", "a=b:\"\""}},
		{[]string{"y=9223372036854775808/a.csv", "y=+1/a.csv"}, "", []string{"y:\"9223372036854775808\"", "y:\"+1\""}},
		{[]string{"s3://b/p/k=v=w/a.csv", `c:\k=u\a.csv`}, "", []string{"k:\"v=w\"", "k:\"u\""}},
		{[]string{"y=1/a", "y=2/a", "y=3/a"}, "y >= 2 and other = 5", []string{"y:2", "y:3"}},
		{[]string{"y=1/a", "y=2/a", "a"}, "y is null or not y != 2", []string{"y:2", "y:null"}},
		{[]string{"y=a/a", "y=b/a"}, "y in (b, c)", []string{"y:\"b\""}},
		{[]string{"y=1/a", "y=2/a"}, "other = 1 or y = 2", []string{"y:1", "y:2"}},
		{[]string{"y=1/a", "y=2/a"}, "y > 5", []string{"y:1"}},           // whose rows are left out one by one
		{[]string{"y=1/a", "y=2/a"}, `y != "2"`, []string{"y:1", "y:2"}}, // as lines have it, of which a text is no number
		{[]string{"y=1/a", "y=2/a"}, "y != 0x1p1", []string{"y:1", "y:2"}},
		{[]string{"y=1/a", "y=2/a", "a"}, "y = 2", []string{"y:2", "y:null"}}, // the rows of a may have a y
		{[]string{"y=1/a", "y=2/a"}, "y > x", []string{"y:1", "y:2"}},
		{[]string{"y=1/a", "y=2/a"}, "y >", []string{"y:1", "y:2"}},
	} {
		var in []source.Input
		for _, p := range c.paths {
			in = append(in, source.Input{Name: p})
		}
		var conditions []string
		if c.where != "" {
			conditions = []string{c.where}
		}
		files, passed, err := inputs.Hive(inputs.Files(in), conditions)
		if err != nil || len(files)+len(passed) != len(in) {
			t.Errorf("%q: %v", c.paths, err)
		}
		var got []string
		for _, f := range files {
			var line []string
			for _, k := range f.Constants {
				text := fmt.Sprintf("%s:%q", k.Name, k.Text)
				if k.Null {
					text = k.Name + ":null"
				} else if k.Integer {
					text = fmt.Sprintf("%s:%d", k.Name, k.N)
				}
				line = append(line, text)
			}
			got = append(got, strings.Join(line, " "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q where %q: %q, want %q", c.paths, c.where, got, c.want)
		}
	}
	if _, _, err := inputs.Hive(inputs.Files([]source.Input{{Name: "y=1/y=2/a"}}), nil); err == nil {
		t.Error("a key twice")
	}
}
