// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/refold-io/refold/internal/testkit/freeport"
)

// project does what docker compose config does. It refuses unknown fields and references to missing
// networks, volumes, secrets and services.
func project(tb testing.TB) *types.Project {
	tb.Helper()
	opts, err := cli.NewProjectOptions([]string{filepath.Join(root, "deploy/compose.yaml")}, cli.WithDiscardEnvFile)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := opts.LoadProject(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

var branches = []string{"bank-0", "bank-1", "bank-2"}

// All services have limits and health checks, are reachable from this machine only, and start after
// those that they need. Files exist, and passwords are marked.
func TestCompose(t *testing.T) {
	t.Parallel()
	p := project(t)
	if want := append([]string{"grafana", "nats", "postgres", "prometheus"}, branches...); !slices.Equal(p.ServiceNames(), sorted(want)) {
		t.Errorf("the services are %q, want %q", p.ServiceNames(), sorted(want))
	}
	for name, s := range p.Services {
		if s.MemLimit < 512<<20 {
			t.Errorf("%s has the memory limit %d, want one of at least 512 MiB", name, s.MemLimit)
		}
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD" {
			t.Errorf("%s has no health check that works without a shell", name)
		}
		for on, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionHealthy && p.Services[on].HealthCheck == nil {
				t.Errorf("%s waits for the health check of %s, which has none", name, on)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes the port %s at %q, want 127.0.0.1", name, port.Published, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && (err != nil || !v.ReadOnly) {
				t.Errorf("%s mounts %s: %v, read-only: %t", name, v.Source, err, v.ReadOnly)
			}
		}
		for variable, value := range s.Environment {
			if strings.Contains(variable, "PASSWORD") && (value == nil || *value != "development-only") {
				t.Errorf("%s has a password in %s that is not marked as one for development", name, variable)
			}
		}
	}
	for name, s := range p.Secrets {
		if data, err := os.ReadFile(s.File); err != nil || !strings.HasSuffix(string(data), ":development-only\n") {
			t.Errorf("the secret %s is not marked as one for development: %v", name, err)
		}
	}
	for _, name := range branches {
		s := p.Services[name]
		if s.DependsOn["nats"].Condition != types.ServiceConditionHealthy || s.DependsOn["postgres"].Condition != types.ServiceConditionHealthy {
			t.Errorf("%s starts before NATS and PostgreSQL are healthy", name)
		}
		if !slices.Contains(s.Command, "--nats-allow-plaintext") {
			t.Errorf("%s does not connect to %s", name, *s.Environment["REFOLD_NATS"])
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Build == nil || s.Build.Dockerfile != "deploy/Dockerfile" {
			t.Errorf("%s is not the image of deploy/Dockerfile with a read-only file system and without capabilities", name)
		}
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// Prometheus scrapes the branches under their names and finds the rules. Grafana has Prometheus as its
// data source, and the dashboard.
func TestComposeShowsMetrics(t *testing.T) {
	t.Parallel()
	p := project(t)
	var scrapes struct {
		Global map[string]string `yaml:"global"`
		Rules  []string          `yaml:"rule_files"`
		Jobs   []struct {
			Name    string `yaml:"job_name"`
			Targets []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decodeYAML(t, mounted(t, p, "prometheus", "/etc/prometheus/prometheus.yml"), &scrapes)
	var want []string
	for _, name := range branches {
		want = append(want, name+":8080")
		if flag(p.Services[name].Command, "host") != name {
			t.Errorf("%s refuses requests to its name", name)
		}
	}
	if len(scrapes.Jobs) != 1 || scrapes.Jobs[0].Name != "refold" || !slices.Equal(scrapes.Jobs[0].Targets[0].Targets, want) {
		t.Errorf("Prometheus scrapes %v, want the job refold with %q", scrapes.Jobs, want)
	}
	for _, file := range scrapes.Rules {
		mounted(t, p, "prometheus", "/etc/prometheus/"+file)
	}
	var sources struct {
		Version int `yaml:"apiVersion"`
		Sources []struct {
			Name, Type, Access, URL string
			Default                 bool `yaml:"isDefault"`
		} `yaml:"datasources"`
	}
	decodeYAML(t, mounted(t, p, "grafana", "/etc/grafana/provisioning/datasources/refold.yml"), &sources)
	if len(sources.Sources) != 1 || sources.Sources[0].Type != "prometheus" || sources.Sources[0].URL != "http://prometheus:9090" {
		t.Errorf("the data sources of Grafana are %v, want http://prometheus:9090", sources.Sources)
	}
	var providers struct {
		Version   int `yaml:"apiVersion"`
		Providers []struct {
			Name, Type string
			Options    struct{ Path string }
		} `yaml:"providers"`
	}
	decodeYAML(t, mounted(t, p, "grafana", "/etc/grafana/provisioning/dashboards/refold.yml"), &providers)
	dashboard := *p.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(providers.Providers) != 1 || filepath.Dir(dashboard) != providers.Providers[0].Options.Path || !json.Valid(mounted(t, p, "grafana", dashboard)) {
		t.Errorf("Grafana reads dashboards from %v, the dashboard is %s", providers.Providers, dashboard)
	}
}

// mounted returns the file that a service finds at a path.
func mounted(tb testing.TB, p *types.Project, service, path string) []byte {
	tb.Helper()
	for _, v := range p.Services[service].Volumes {
		if v.Target != path {
			continue
		}
		data, err := os.ReadFile(v.Source)
		if err != nil {
			tb.Fatal(err)
		}
		return data
	}
	tb.Fatalf("%s has no file %s", service, path)
	return nil
}

func decodeYAML(tb testing.TB, data []byte, into any) {
	tb.Helper()
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		tb.Error(err)
	}
}

// The commands of the three branches start with the environment of compose.yaml and the configuration
// of its NATS server, and their health checks succeed.
func TestComposeStarts(t *testing.T) {
	t.Parallel()
	p, program := project(t), buildBank(t)
	variables, password := database(t)
	variables["PGPASSWORD"] = password
	variables["REFOLD_NATS"] = "nats://" + startNATS(t, natsOptions(t))
	probes := map[*process]string{}
	for _, name := range branches {
		s := p.Services[name]
		if s.Environment["PGPORT"] != nil {
			t.Errorf("%s does not use the default port of PostgreSQL", name)
		}
		port, err := freeport.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var args []string
		for _, arg := range s.Command {
			args = append(args, strings.Replace(arg, "--addr=:8080", "--addr="+address, 1))
		}
		environ := []string{"PGPORT=" + variables["PGPORT"]}
		for variable, value := range s.Environment {
			text := *value
			if local, found := variables[variable]; found {
				text = local
			}
			for _, secret := range s.Secrets {
				text = strings.ReplaceAll(text, "/run/secrets/"+secret.Target, p.Secrets[secret.Source].File)
			}
			environ = append(environ, variable+"="+text)
		}
		probes[startProcess(t, name, program, args, environ)] = "http://" + address + "/ready"
		if check := s.HealthCheck.Test; !slices.Equal(check, []string{"CMD", "/bank", "probe"}) {
			t.Errorf("the health check of %s is %q", name, check)
		}
	}
	for one, url := range probes {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			out, err := exec.CommandContext(t.Context(), program, "probe", url).CombinedOutput()
			if err == nil {
				break
			}
			select {
			case <-tick.C:
			case <-one.ended:
				t.Fatalf("%v: %s", one.exit, out)
			}
		}
	}
	for one := range probes {
		one.terminate()
	}
	for one := range probes {
		if <-one.ended; one.exit != nil {
			t.Errorf("end: %v", one.exit)
		}
	}
}
