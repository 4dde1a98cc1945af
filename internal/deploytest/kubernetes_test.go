// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const kubernetesDir = "deploy/kubernetes"

// manifests are the objects of deploy/kubernetes, as kustomize renders them.
type manifests struct {
	set      *appsv1.StatefulSet
	services []*corev1.Service
	budget   *policyv1.PodDisruptionBudget
	config   *corev1.ConfigMap
}

// decoder decodes objects of the kinds of Kubernetes that deploy/kubernetes may use. It refuses
// unknown kinds, unknown fields and duplicate keys.
func decoder(tb testing.TB) runtime.Decoder {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// render does what kubectl apply --kustomize deploy/kubernetes does before it sends the objects.
func render(tb testing.TB) (m manifests) {
	tb.Helper()
	return renderDir(tb, filesys.MakeFsOnDisk(), filepath.Join(root, kubernetesDir))
}

func renderDir(tb testing.TB, files filesys.FileSystem, dir string) (m manifests) {
	tb.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if err != nil {
		tb.Fatal(err)
	}
	decode := decoder(tb)
	for _, r := range resources.Resources() {
		data, err := r.AsYAML()
		if err != nil {
			tb.Fatal(err)
		}
		object, _, err := decode.Decode(data, nil, nil)
		if err != nil {
			tb.Fatalf("%s: %v", r.CurId(), err)
		}
		switch object := object.(type) {
		case *appsv1.StatefulSet:
			m.set = object
		case *corev1.Service:
			m.services = append(m.services, object)
		case *policyv1.PodDisruptionBudget:
			m.budget = object
		case *corev1.ConfigMap:
			m.config = object
		default:
			tb.Errorf("%s: no test checks this kind", r.CurId())
		}
	}
	if m.set == nil || len(m.services) != 2 || m.budget == nil || m.config == nil {
		tb.Fatalf("%s renders %d services, StatefulSet: %t, budget: %t, ConfigMap: %t; want 2 and one of each other kind",
			kubernetesDir, len(m.services), m.set != nil, m.budget != nil, m.config != nil)
	}
	return m
}

// Each manifest has only fields that the API of Kubernetes has, each once.
func TestManifestsAreStrict(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, kubernetesDir, "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files in %s: %v", len(files), kubernetesDir, err)
	}
	decode := decoder(t)
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue // render refuses unknown fields
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			if _, _, err := decode.Decode([]byte(document), nil, nil); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
	render(t)
}

// The overlay of docs/deployment.md changes the image, the namespace and the addresses.
func TestOverlay(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```yaml\n(# overlay/kustomization.yaml\n.*?)```").FindStringSubmatch(readFile(t, "docs/deployment.md"))
	if block == nil {
		t.Fatal("docs/deployment.md has no overlay/kustomization.yaml")
	}
	files := filesys.MakeFsInMemory()
	write := func(name, text string) {
		t.Helper()
		if err := files.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("/overlay/kustomization.yaml", block[1])
	for _, name := range []string{"kustomization.yaml", "statefulset.yaml", "service.yaml", "disruption-budget.yaml"} {
		write("/"+kubernetesDir+"/"+name, readFile(t, kubernetesDir+"/"+name))
	}
	m := renderDir(t, files, "/overlay")
	image := container(m).Image
	if image != "registry.internal/bank:1.4.2" || m.set.Namespace != "bank" || m.config.Data["PGHOST"] != "postgres.databases" || m.config.Data["PGSSLMODE"] != "verify-full" {
		t.Errorf("the overlay has the image %s, the namespace %q and the addresses %v", image, m.set.Namespace, m.config.Data)
	}
}

// service returns the service that clients use.
func (m manifests) service() *corev1.Service {
	return m.services[slices.IndexFunc(m.services, func(s *corev1.Service) bool { return s.Spec.ClusterIP != corev1.ClusterIPNone })]
}

// The objects fit together: selectors, names, ports, and references.
func TestManifestsFit(t *testing.T) {
	t.Parallel()
	m := render(t)
	pod := labels.Set(m.set.Spec.Template.Labels)
	selects := func(what string, s labels.Selector) {
		t.Helper()
		if s.Empty() || !s.Matches(pod) {
			t.Errorf("the selector %q of %s does not match the labels %q of the pods", s, what, pod)
		}
	}
	selector := func(what string, s *metav1.LabelSelector) {
		t.Helper()
		parsed, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Errorf("the selector of %s: %v", what, err)
			return
		}
		selects(what, parsed)
	}
	selector("the StatefulSet", m.set.Spec.Selector)
	selector("the budget", m.budget.Spec.Selector)
	for _, c := range m.set.Spec.Template.Spec.TopologySpreadConstraints {
		selector("the spread over machines", c.LabelSelector)
	}
	ports := container(m).Ports
	for _, s := range m.services {
		selects("the service "+s.Name, labels.SelectorFromSet(s.Spec.Selector))
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(ports, func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				t.Errorf("the service %s sends to the port %q, which the container does not have", s.Name, p.TargetPort.String())
			}
		}
	}
	headless := slices.IndexFunc(m.services, func(s *corev1.Service) bool { return s.Name == m.set.Spec.ServiceName })
	if headless < 0 || m.services[headless].Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("the StatefulSet names the service %q, which is not a headless service", m.set.Spec.ServiceName)
	}
	if got := m.budget.Spec.MaxUnavailable; got == nil || got.IntValue() != 1 {
		t.Errorf("the budget allows %v nodes to be unavailable, want 1", got)
	}
	port := ports[0].ContainerPort
	if got := m.set.Spec.Template.Annotations["prometheus.io/port"]; got != itoa(port) {
		t.Errorf("the annotation for Prometheus has the port %s, the container %d", got, port)
	}
	if !slices.Contains(container(m).Args, "--addr=:"+itoa(port)) {
		t.Errorf("the bank listens according to %q, the container has the port %d", container(m).Args, port)
	}
	volumes := map[string]bool{}
	for _, v := range m.set.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, mount := range container(m).VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("the mount at %s needs the volume %q, which the pod does not have", mount.MountPath, mount.Name)
		}
	}
	if !strings.HasPrefix(m.config.Data["REFOLD_NATS"], "tls://") || m.config.Data["PGSSLMODE"] != "verify-full" {
		t.Errorf("the addresses %v do not verify the servers, as docs/security.md requires", m.config.Data)
	}
}

// The pods run with few rights, and with time and memory that suffice.
func TestManifestsAreSafe(t *testing.T) {
	t.Parallel()
	m := render(t)
	spec, c := m.set.Spec.Template.Spec, container(m)
	want := func(what string, holds bool) {
		t.Helper()
		if !holds {
			t.Errorf("the pod does not have %s", what)
		}
	}
	own, all := c.SecurityContext, spec.SecurityContext
	want("runAsNonRoot and a user", all.RunAsNonRoot != nil && *all.RunAsNonRoot && all.RunAsUser != nil && *all.RunAsUser > 0)
	want("the user of the Dockerfile", slices.Contains(instructions(readFile(t, "deploy/Dockerfile")), "USER "+itoa(*all.RunAsUser)+":"+itoa(*all.RunAsGroup)))
	want("a group that can read the files of the Secrets", all.FSGroup != nil && *all.FSGroup == *all.RunAsGroup)
	want("the seccomp profile of the runtime", all.SeccompProfile != nil && all.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault)
	want("readOnlyRootFilesystem", own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem)
	want("allowPrivilegeEscalation: false", own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation)
	want("dropped capabilities", slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(own.Capabilities.Add) == 0)
	want("automountServiceAccountToken: false", spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken)
	want("requests of CPU and memory", !c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero())
	want("four times the budget of waiting messages", c.Resources.Limits.Memory().Value() >= 4*256<<20)
	for _, v := range spec.Volumes {
		want("Secrets that only its user can read, in "+v.Name, v.Secret != nil && v.Secret.DefaultMode != nil && *v.Secret.DefaultMode&0o007 == 0)
	}
	for _, e := range c.Env {
		secret := regexp.MustCompile(`PASSWORD|TOKEN|SECRET`).MatchString(e.Name)
		want("a Secret for "+e.Name, !secret || e.Value == "" && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil)
	}
	for name := range m.config.Data {
		want("a Secret for "+name, !regexp.MustCompile(`PASSWORD|TOKEN|SECRET`).MatchString(name))
	}
	want("startup, readiness and liveness probes", c.StartupProbe != nil && c.ReadinessProbe != nil && c.LivenessProbe != nil)
	delay, err := time.ParseDuration(flag(c.Args, "drain-delay"))
	want("--drain-delay", err == nil)
	want("a drain delay after which the Service sends nothing", delay > 2*propagation)
	want("a rolling update", m.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && m.set.Spec.UpdateStrategy.RollingUpdate == nil)
	var names []string
	for i := range *m.set.Spec.Replicas {
		names = append(names, m.set.Name+"-"+itoa(i))
	}
	want("all nodes as seeds", flag(c.Args, "join") == strings.Join(names, ","))
}

func container(m manifests) *corev1.Container { return &m.set.Spec.Template.Spec.Containers[0] }

func grace(m manifests) time.Duration {
	return time.Duration(*cmp.Or(m.set.Spec.Template.Spec.TerminationGracePeriodSeconds, new(int64))) * time.Second
}

// flag returns the value of an argument --name=value.
func flag(args []string, name string) string {
	for _, a := range args {
		if value, found := strings.CutPrefix(a, "--"+name+"="); found {
			return value
		}
	}
	return ""
}
