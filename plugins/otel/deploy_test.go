// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/refold-io/refold/plugins/otel"
)

const deployDir = "../../deploy/"

// dashboard is the part of a dashboard of Grafana that queries metrics.
type dashboard struct {
	UID    string
	Title  string
	Panels []struct {
		ID      int
		Type    string
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
}

// alert is a rule of Prometheus.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type rules struct {
	Groups []struct {
		Name  string  `yaml:"name"`
		Rules []alert `yaml:"rules"`
	} `yaml:"groups"`
}

// readYAML reads a file of deploy/ and fails for an unknown field.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(deployDir + name)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Fatalf("%s has a second document: %v", name, err)
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	data, err := os.ReadFile(deployDir + "grafana/refold.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// series are the names in Prometheus, with the labels of each.
type series map[string][]string

// knownSeries returns the series that the code exports: a histogram has three of them.
func knownSeries(t *testing.T) series {
	t.Helper()
	rows, _, _ := docsTable(t)
	all := declare(t)
	names := exported(t, all)
	known := series{"up": {"job", "instance"}}
	for _, i := range all {
		labels := []string{"job", "instance"}
		for _, m := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(rows[i.name][3], -1) {
			labels = append(labels, strings.ReplaceAll(m[1], ".", "_"))
		}
		if i.kind != "histogram" {
			known[names[i.name]] = labels
			continue
		}
		known[names[i.name]+"_sum"], known[names[i.name]+"_count"] = labels, labels
		known[names[i.name]+"_bucket"] = append(slices.Clone(labels), "le")
	}
	return known
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"`)
	selector   = regexp.MustCompile(`\{([^{}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=) *""`)
	grouping   = regexp.MustCompile(`\b(?:by|without) *\(([a-z_, ]*)\)`)
	duration   = regexp.MustCompile(`\[[^\]]*\]`)
	word       = regexp.MustCompile(`[a-z_][a-z0-9_]*`)
	inTemplate = regexp.MustCompile(`\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}`)
)

// functions are the words of the expressions that are no metrics.
var functions = []string{"sum", "min", "max", "count", "rate", "increase", "histogram_quantile", "min_over_time", "vector", "or"}

// check returns the mistakes of an expression: unknown metrics, labels that its metrics do not have,
// and brackets that do not match.
func (s series) check(expr string) (mistakes []string) {
	text := quoted.ReplaceAllString(expr, `""`)
	var labels []string
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		for _, l := range matcher.FindAllStringSubmatch(m[1], -1) {
			labels = append(labels, l[1])
		}
	}
	text = selector.ReplaceAllString(text, "")
	for _, m := range grouping.FindAllStringSubmatch(text, -1) {
		labels = append(labels, word.FindAllString(m[1], -1)...)
	}
	text = duration.ReplaceAllString(grouping.ReplaceAllString(text, ""), "")
	var metrics []string
	for _, w := range word.FindAllString(text, -1) {
		switch {
		case slices.Contains(functions, w):
		case s[w] == nil:
			mistakes = append(mistakes, fmt.Sprintf("the code exports no metric %s", w))
		default:
			metrics = append(metrics, w)
		}
	}
	if len(metrics) == 0 {
		mistakes = append(mistakes, "no metric")
	}
	for _, l := range labels {
		for _, m := range metrics {
			if !slices.Contains(s[m], l) {
				mistakes = append(mistakes, fmt.Sprintf("%s has no label %s", m, l))
			}
		}
	}
	depth := 0
	for _, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		mistakes = append(mistakes, "brackets do not match")
	}
	return mistakes
}

func TestCheckOfExpressions(t *testing.T) {
	t.Parallel()
	known := series{"a_total": {"job", "status"}, "b_bucket": {"job", "le"}}
	for expr, want := range map[string]int{
		`sum by (job) (rate(a_total{status="up", job="$job"}[5m])) > 0.01`:    0,
		`histogram_quantile(0.99, sum by (le) (rate(b_bucket[$__interval])))`: 0,
		`sum(a)`:                       2, // unknown, and none left
		`a_total{state="up"}`:          1,
		`sum by (state) (a_total)`:     1,
		`sum(a_total`:                  1,
		`sum(a_total))`:                1,
		`sum by (le) (a_total) or foo`: 2,
		`1`:                            1,
	} {
		if got := known.check(expr); len(got) != want {
			t.Errorf("%s: got the mistakes %q, want %d", expr, got, want)
		}
	}
}

// The dashboard queries only metrics and labels that the code exports.
func TestDashboard(t *testing.T) {
	t.Parallel()
	known, d := knownSeries(t), readDashboard(t)
	if d.UID != "refold" || d.Title == "" {
		t.Errorf("the dashboard has the UID %q and the title %q, want refold and a title", d.UID, d.Title)
	}
	ids, shown := make(map[int]bool), 0
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the ID %d", p.ID)
		}
		if ids[p.ID] = true; p.Type == "row" {
			continue
		}
		if shown++; len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			for _, mistake := range known.check(target.Expr) {
				t.Errorf("panel %q: %s: %s", p.Title, target.Expr, mistake)
			}
			for _, m := range inTemplate.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(target.Expr, m[1]) && !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(name string) bool {
					return strings.Contains(target.Expr, name+"{") && slices.Contains(known[name], m[1])
				}) {
					t.Errorf("panel %q: no series of %s has the label %s of the legend", p.Title, target.Expr, m[1])
				}
			}
		}
	}
	if shown < 30 {
		t.Errorf("the dashboard has %d panels, want at least 30", shown)
	}
}

// The alert rules query only metrics and labels that the code exports, and docs/observability.md lists
// each alert.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	known := knownSeries(t)
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	var all rules
	readYAML(t, "prometheus/rules.yml", &all)
	names := make(map[string]bool)
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if names[r.Alert] {
				t.Errorf("the alert %s exists twice", r.Alert)
			}
			names[r.Alert] = true
			for _, mistake := range known.check(r.Expr) {
				t.Errorf("alert %s: %s: %s", r.Alert, r.Expr, mistake)
			}
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("alert %s: %v", r.Alert, err)
			}
			if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("alert %s has the severity %q, want warning or critical", r.Alert, severity)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %s has no summary or no description", r.Alert)
			}
			for _, m := range inTemplate.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if m[1] != "value" && !templateLabel(known, r.Expr, m[1]) {
					t.Errorf("alert %s: the series of %s have no label %s", r.Alert, r.Expr, m[1])
				}
			}
			if !bytes.Contains(page, []byte("| `"+r.Alert+"` | "+r.Labels["severity"]+" |")) {
				t.Errorf("%s does not list the alert %s with the severity %s", docsPage, r.Alert, r.Labels["severity"])
			}
		}
	}
	if len(names) < 15 {
		t.Errorf("there are %d alerts, want at least 15", len(names))
	}
}

// templateLabel reports whether the result of an expression has a label: its grouping keeps the label,
// or it has no grouping.
func templateLabel(known series, expr, label string) bool {
	if groups := grouping.FindAllStringSubmatch(expr, -1); len(groups) > 0 {
		return slices.Contains(word.FindAllString(groups[0][1], -1), label)
	}
	for name, labels := range known {
		if strings.Contains(expr, name) && slices.Contains(labels, label) {
			return true
		}
	}
	return false
}

// The configuration of Prometheus loads the rules and scrapes the job of the rules.
func TestPrometheusConfig(t *testing.T) {
	t.Parallel()
	var cfg struct {
		Global struct {
			ScrapeInterval     time.Duration `yaml:"scrape_interval"`
			EvaluationInterval time.Duration `yaml:"evaluation_interval"`
		} `yaml:"global"`
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			StaticConfigs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "prometheus/prometheus.yml", &cfg)
	if !slices.Equal(cfg.RuleFiles, []string{"rules.yml"}) {
		t.Errorf("the rule files are %q, want rules.yml", cfg.RuleFiles)
	}
	if len(cfg.ScrapeConfigs) != 1 || cfg.ScrapeConfigs[0].JobName != "refold" || len(cfg.ScrapeConfigs[0].StaticConfigs[0].Targets) == 0 {
		t.Errorf("the scrape configurations are %+v, want the job refold with targets", cfg.ScrapeConfigs)
	}
	if cfg.Global.ScrapeInterval == 0 || cfg.Global.EvaluationInterval == 0 {
		t.Errorf("the intervals are %+v, want both", cfg.Global)
	}
}

// The exporter for Prometheus exports the series of a node with the names and labels of the table.
func TestSeriesInPrometheus(t *testing.T) {
	t.Parallel()
	known := knownSeries(t)
	registry := client.NewPedanticRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutTargetInfo(), prometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	telemetry := newTelemetry(t, otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))})
	openStation(t, telemetry)
	everything(telemetry.Observer())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < 60 {
		t.Errorf("the exporter has %d metrics, want at least 60", len(families))
	}
	for _, f := range families {
		name := f.GetName()
		if f.GetMetric()[0].GetHistogram() != nil {
			name += "_count"
		}
		if known[name] == nil {
			t.Errorf("the table does not list %s", name)
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(known[name], l.GetName()) {
					t.Errorf("%s has the label %s, the table lists %q", name, l.GetName(), known[name])
				}
			}
		}
	}
}
