// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refold-io/refold/internal/testkit/freeport"
)

// namespace is the namespace of the pods.
const namespace = "shop"

// propagation is the time until a change of a pod's readiness has reached all machines, so that they
// route connections differently.
const propagation = time.Second

// platform does to processes on this machine what Kubernetes does to the pods of a StatefulSet with a
// Service: it starts them with their arguments and environment, probes them, routes connections to
// ready ones, and replaces them one by one.
type platform struct {
	testing.TB
	manifests

	program string
	config  map[string]string // the ConfigMap
	secrets map[string]map[string]string
	pods    []*pod
	http    *http.Client // sends requests to the Service
	routing sync.RWMutex
	routed  []*pod
	work    sync.WaitGroup // the probes
}

// pod is a process of the bank.
type pod struct {
	platform *platform
	name     string
	address  string
	process  *process
	begun    time.Time

	mu      sync.Mutex
	ready   bool
	leaving bool
	changed chan struct{} // closed when ready changes
}

// newPlatform prepares the pods. The config replaces values of the ConfigMap.
func newPlatform(tb testing.TB, program string, config map[string]string, secrets map[string]map[string]string) *platform {
	tb.Helper()
	p := &platform{TB: tb, manifests: render(tb), program: program, config: map[string]string{}, secrets: secrets}
	for name, value := range p.manifests.config.Data {
		p.config[name] = value
	}
	for name, value := range config {
		if _, found := p.config[name]; !found {
			tb.Fatalf("the ConfigMap has no value %s", name)
		}
		p.config[name] = value
	}
	p.pods = make([]*pod, *p.set.Spec.Replicas)
	// As with a Service, a machine chooses a pod for each connection, and the connection stays there.
	// The connections of a client that pauses are closed before a node closes them.
	p.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 256, IdleConnTimeout: 2 * time.Second, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			p.routing.RLock()
			var to *pod
			if len(p.routed) > 0 {
				to = p.routed[rand.IntN(len(p.routed))]
			}
			p.routing.RUnlock()
			if to == nil {
				return nil, errors.New("the service has no ready pod")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", to.address)
		},
	}}
	tb.Cleanup(func() { p.http.CloseIdleConnections(); p.work.Wait() })
	return p
}

// start starts a pod.
func (p *platform) start(i int) *pod {
	p.Helper()
	port, err := freeport.Find(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	c := container(p.manifests)
	one := &pod{platform: p, name: p.set.Name + "-" + itoa(i), address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), begun: time.Now(), changed: make(chan struct{})}
	env := one.environment(c)
	files := one.files(c)
	args := make([]string, len(c.Args))
	for n, arg := range c.Args {
		args[n] = one.local(expand(arg, env), files)
	}
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+one.local(value, files))
	}
	one.process = startProcess(p, one.name, p.program, args, environ)
	p.pods[i] = one
	p.work.Go(func() { one.probes(c) })
	return one
}

var variable = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// expand replaces references to variables, as Kubernetes does in arguments.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string {
		if value, found := env[variable.FindStringSubmatch(reference)[1]]; found {
			return value
		}
		return reference
	})
}

// environment returns the variables of a container.
func (o *pod) environment(c *corev1.Container) map[string]string {
	o.platform.Helper()
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil || from.ConfigMapRef.Name != o.platform.manifests.config.Name {
			o.platform.Fatalf("the container takes variables from %v, which kustomize does not make", from)
		}
		for name, value := range o.platform.config {
			env[name] = value
		}
	}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = e.Value
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			env[e.Name] = o.name
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			env[e.Name] = namespace
		case from.SecretKeyRef != nil:
			env[e.Name] = o.platform.secret(from.SecretKeyRef.Name, from.SecretKeyRef.Key)
		default:
			o.platform.Fatalf("the variable %s has an unknown source", e.Name)
		}
	}
	return env
}

func (p *platform) secret(name, key string) string {
	p.Helper()
	value, found := p.secrets[name][key]
	if !found {
		p.Fatalf("docs/deployment.md describes no key %s of the Secret %s", key, name)
	}
	return value
}

// files writes the mounted files of Secrets. It returns their paths by mount path.
func (o *pod) files(c *corev1.Container) map[string]string {
	o.platform.Helper()
	files, dir := map[string]string{}, o.platform.TempDir()
	for i, mount := range c.VolumeMounts {
		spec := o.platform.set.Spec.Template.Spec
		volume := spec.Volumes[slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })]
		key := mount.SubPath + expand(mount.SubPathExpr, map[string]string{"POD_NAME": o.name})
		path := filepath.Join(dir, itoa(i))
		if err := os.WriteFile(path, []byte(o.platform.secret(volume.Secret.SecretName, key)), 0o600); err != nil {
			o.platform.Fatal(err)
		}
		files[mount.MountPath] = path
	}
	return files
}

// local replaces what only exists in a container: its files, and its network.
func (o *pod) local(text string, files map[string]string) string {
	for mount, path := range files {
		text = strings.ReplaceAll(text, mount, path)
	}
	return strings.Replace(text, "--addr=:"+itoa(container(o.platform.manifests).Ports[0].ContainerPort), "--addr="+o.address, 1)
}

// probes runs the probes of a pod until it ends.
func (o *pod) probes(c *corev1.Container) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		<-o.process.ended
		stop()
	}()
	o.repeat(ctx, c.StartupProbe, func(failures int32, err error) (done bool) {
		if failures >= threshold(c.StartupProbe) {
			o.platform.Errorf("%s: Kubernetes would restart the pod: startup probe: %v", o.name, err)
		}
		return err == nil
	})
	o.platform.work.Go(func() {
		o.repeat(ctx, c.LivenessProbe, func(failures int32, err error) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			if failures >= threshold(c.LivenessProbe) && !o.leaving {
				o.platform.Errorf("%s: Kubernetes would restart the pod: liveness probe: %v", o.name, err)
			}
			return o.leaving
		})
	})
	o.repeat(ctx, c.ReadinessProbe, func(failures int32, err error) bool {
		if err == nil || failures >= threshold(c.ReadinessProbe) {
			o.set(err == nil, false)
		}
		return false
	})
	o.set(false, true)
}

func threshold(p *corev1.Probe) int32 { return max(p.FailureThreshold, 1) }

// repeat probes until ctx ends or handle returns true.
func (o *pod) repeat(ctx context.Context, probe *corev1.Probe, handle func(failures int32, err error) bool) {
	client := &http.Client{Timeout: time.Duration(max(probe.TimeoutSeconds, 1)) * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(time.Duration(max(probe.PeriodSeconds, 1)) * time.Second)
	defer tick.Stop()
	for failures := int32(0); ; {
		err := get(ctx, client, "http://"+o.address+probe.HTTPGet.Path)
		if ctx.Err() != nil {
			return
		}
		if failures++; err == nil {
			failures = 0
		}
		if handle(failures, err) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// get returns an error unless the response has a status below 400.
func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1000))
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text))
	}
	return err
}

// set sets the readiness of a pod. Machines route accordingly after a while.
func (o *pod) set(ready, leaving bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaving = o.leaving || leaving
	ready = ready && !o.leaving
	if ready == o.ready {
		return
	}
	o.ready = ready
	close(o.changed)
	o.changed = make(chan struct{})
	o.platform.Logf("%s %s: ready: %t", time.Now().Format(time.TimeOnly), o.name, ready)
	time.AfterFunc(propagation, func() {
		p := o.platform
		p.routing.Lock()
		defer p.routing.Unlock()
		others := slices.DeleteFunc(slices.Clone(p.routed), func(r *pod) bool { return r == o })
		if ready {
			others = append(others, o)
		}
		p.routed = others
	})
}

// awaitReady waits until a pod has been ready for a time.
func (o *pod) awaitReady(stable time.Duration) {
	o.platform.Helper()
	patience := time.After(3 * time.Minute)
	for {
		o.mu.Lock()
		ready, changed := o.ready, o.changed
		o.mu.Unlock()
		var over <-chan time.Time
		if ready {
			over = time.After(stable)
		}
		select {
		case <-over:
			return
		case <-changed:
		case <-o.process.ended:
			o.platform.Fatalf("%s has ended: %v", o.name, o.process.exit)
		case <-patience:
			o.platform.Fatalf("%s is not ready", o.name)
		}
	}
}

// terminate ends a pod as Kubernetes does: machines stop to route to it while it receives SIGTERM, and
// after the grace period it is killed.
func (o *pod) terminate() {
	o.platform.Helper()
	if hook := container(o.platform.manifests).Lifecycle; hook != nil {
		o.platform.Fatal("the test does not know hooks of the lifecycle")
	}
	o.set(false, true)
	begun := time.Now()
	o.process.terminate()
	select {
	case <-o.process.ended:
	case <-time.After(grace(o.platform.manifests)):
		o.platform.Errorf("%s: Kubernetes would kill the pod after the grace period", o.name)
		o.process.kill()
	}
	if o.process.exit != nil {
		o.platform.Errorf("%s has ended with %v", o.name, o.process.exit)
	}
	o.platform.Logf("%s has ended after %v", o.name, time.Since(begun).Round(100*time.Millisecond))
}

// roll replaces the pods one by one, as a rolling update does.
func (p *platform) roll() {
	p.Helper()
	for i := len(p.pods) - 1; i >= 0; i-- {
		p.pods[i].terminate()
		next := p.start(i)
		next.awaitReady(0)
		p.Logf("%s is ready after %v", next.name, time.Since(next.begun).Round(100*time.Millisecond))
		next.awaitReady(time.Duration(p.set.Spec.MinReadySeconds) * time.Second)
	}
}

// process is a process of the bank. It ends with the test, also if the test is killed.
type process struct {
	cmd   *exec.Cmd
	in    io.Closer
	log   *tail
	ended chan struct{}
	exit  error // valid when ended is closed
}

// tail keeps the end of a log.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const size = 64 << 10
	if l.buf = append(l.buf, p...); len(l.buf) > 2*size {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-size:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

// guardArg is the first argument of this binary when it runs a program instead of the tests.
const guardArg = "guard-a-program"

// guard runs a program until it ends or standard input does, and passes SIGTERM to it.
func guard(args []string) int {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for s := range terms {
			_ = cmd.Process.Signal(s)
		}
	}()
	var killed atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		killed.Store(true)
		_ = cmd.Process.Kill()
	}()
	_ = cmd.Wait() // its exit code says it
	if killed.Load() {
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// startProcess starts a program with exactly this environment.
func startProcess(tb testing.TB, name, program string, args, environ []string) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, append([]string{guardArg, program}, args...)...), log: new(tail), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environ, p.log, p.log
	p.in, err = p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.exit = p.cmd.Wait()
	}()
	tb.Cleanup(func() {
		p.kill()
		if tb.Failed() {
			tb.Logf("%s has printed:\n%s", name, p.log)
		}
	})
	return p
}

// terminate sends SIGTERM.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the process at once, and waits for its end.
func (p *process) kill() {
	_ = p.in.Close()
	<-p.ended
}

func itoa[N int | int32 | int64](n N) string { return strconv.FormatInt(int64(n), 10) }
