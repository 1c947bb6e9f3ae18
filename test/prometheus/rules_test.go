// Package prometheus reads the example rules in deploy/prometheus as Prometheus does.
package prometheus

import (
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// rules is a file of alert rules without other members: see "Defining recording rules" in
// Prometheus's documentation.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestAlertRules(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			if rule.Alert == "" || rule.Expr == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%+v", rule)
			}
			if _, err := time.ParseDuration(rule.For); rule.For != "" && err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
			}
			const at = "https://github.com/shardtool/shardtool/blob/main/docs/on-call.md#"
			if rule.Annotations["runbook_url"] != at+strings.ToLower(rule.Alert) || !strings.Contains(string(page), "\n## "+rule.Alert+"\n") {
				t.Errorf("%s: the runbook is %s", rule.Alert, rule.Annotations["runbook_url"])
			}
			if seen[rule.Alert] {
				t.Errorf("%s comes twice", rule.Alert)
			}
			seen[rule.Alert] = true
		}
	}
	if len(seen) < 5 {
		t.Errorf("%d alerts", len(seen))
	}
}
