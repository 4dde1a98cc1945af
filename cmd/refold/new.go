// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/inspect"
)

// templates are the files of a new module. The Go files are not named *.go, because they are no part of
// this package.
//
//go:embed template
var templates embed.FS

// goVersion is the version in go.mod of this module, which a module that requires it needs as well.
const goVersion = "1.26.0"

type newCommand struct {
	Name    string `arg:"" help:"The name of the service, such as shop, or the path of its module, such as github.com/acme/shop. The directory has the name of the service."`
	Store   string `help:"The store of the service: ${enum}." default:"leveldb" enum:"leveldb,postgres"`
	Replace string `help:"Use the checkout of Refold in this directory. Defaults to the checkout from which this program was built, and without one to the version of this program." type:"path" placeholder:"DIR"`
}

func (c *newCommand) Help() string {
	return `Makes a directory in the present one with a module: an entity with its tests, an HTTP service, a Makefile, a Dockerfile and
a README. Then it runs the go command there to complete go.mod, which downloads missing modules. Files that exist are
not overwritten.`
}

var (
	// serviceName matches names that a directory, a program, a container image and a module may have.
	serviceName = regexp.MustCompile(`^[a-z][a-z0-9]*([-_][a-z0-9]+)*$`)
	pathElement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*$`)
)

func (c *newCommand) Validate() error {
	name := path.Base(c.Name)
	if c.Name == "" {
		return nil // kong reports the missing argument
	}
	if !serviceName.MatchString(name) {
		return fmt.Errorf("name %q: the name of a service has lower-case letters, digits and single hyphens, and begins with a letter", name)
	}
	if c.Name == name {
		return nil
	}
	elements := strings.Split(c.Name, "/")
	for _, e := range elements {
		if !pathElement.MatchString(e) || strings.HasSuffix(e, ".") {
			return fmt.Errorf("name %q: %q cannot be an element of a module path", c.Name, e)
		}
	}
	if !strings.Contains(elements[0], ".") {
		return fmt.Errorf("name %q: a module path begins with a host name, such as example.com", c.Name)
	}
	return nil
}

// newModule holds the values of the templates.
type newModule struct {
	Name, Module     string
	Go, Image        string // the version in go.mod, and the tag of the image that builds the program
	Version, Replace string // of Refold: the version, and the directory to use instead
	Requires         []moduleVersion
	Postgres         bool
}

type moduleVersion struct{ Path, Version string }

func (c *newCommand) Run(ctx context.Context, env *operator.Env) error {
	m := newModule{
		Name: path.Base(c.Name), Module: c.Name, Go: goVersion, Image: goVersion[:strings.LastIndex(goVersion, ".")], Postgres: c.Store == "postgres",
	}
	// The name of a package of the standard library cannot be the path of a module.
	if std, err := goCommand(ctx, ".", "list", "-find", "-f", "{{.Standard}}", m.Module); err == nil && bytes.HasPrefix(std, []byte("true")) {
		return fmt.Errorf("name %q: the standard library has a package of that name: use the path of a module, such as example.com/%[1]s", m.Module)
	}
	var err error
	if m.Version, m.Replace, err = c.refold(); err != nil {
		return err
	}
	sums, err := m.require(ctx)
	if err != nil {
		return err
	}
	files, err := m.render()
	if err != nil {
		return err
	}
	if err = write(m.Name, append(files, newFile{"go.sum", sums})); err != nil {
		return err
	}
	if err = m.tidy(ctx); err != nil {
		return fmt.Errorf("the files in %s are written, but go.mod is not complete; correct the cause and run \"go mod tidy\" there: %w", m.Name, err)
	}
	if m.Replace != "" {
		if _, err = fmt.Fprintf(env.Stderr, "%s: the module uses the checkout in %s; for a container image, replace it with a release in %s/go.mod\n", env.Name, m.Replace, m.Name); err != nil {
			return err
		}
	}
	database := ""
	if m.Postgres {
		database = "\n    export DATABASE_URL='postgres://USER@HOST/DATABASE?sslmode=verify-full'"
	}
	_, err = fmt.Fprintf(env.Stdout, `%s is ready. Try:

    cd %[1]s
    go test ./...%s
    go run .

README.md lists the calls and the files.
`, m.Name, database)
	return err
}

// refold returns the version of this module for go.mod, and the directory of a checkout to use instead.
func (c *newCommand) refold() (version, replace string, err error) {
	if c.Replace != "" {
		if !isCheckout(c.Replace) {
			return "", "", fmt.Errorf("--replace: %s contains no module %s", c.Replace, inspect.RefoldPath)
		}
		return "v0.0.0", c.Replace, nil
	}
	_, file, _, _ := runtime.Caller(0)
	if dir := filepath.Dir(filepath.Dir(filepath.Dir(file))); isCheckout(dir) {
		return "v0.0.0", dir, nil
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		version = inspect.RefoldVersion(info)
	}
	if version == "" || version == "(devel)" || strings.Contains(version, "+") {
		return "", "", errors.New("this program was not built from a release: use --replace with the directory of a checkout of Refold")
	}
	return version, "", nil
}

// isCheckout reports whether a directory holds this module and is not a copy in the module cache, which
// may be removed.
func isCheckout(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod")) //nolint:gosec // a file of this module
	return err == nil && filepath.IsAbs(dir) && !strings.Contains(filepath.Base(dir), "@") && bytes.HasPrefix(text, []byte("module "+inspect.RefoldPath+"\n"))
}

// require sets Requires to all modules that Refold requires, and returns its go.sum. With both, the go
// command reads no go.mod of other modules and needs no database of sums.
func (m *newModule) require(ctx context.Context) (sums []byte, err error) {
	dir := m.Replace
	if dir == "" {
		var downloaded struct{ Dir string }
		if err = goJSON(ctx, &downloaded, "mod", "download", "-json", inspect.RefoldPath+"@"+m.Version); err != nil {
			return nil, err
		}
		dir = downloaded.Dir
	}
	var mod struct{ Require []moduleVersion }
	if err = goJSON(ctx, &mod, "mod", "edit", "-json", filepath.Join(dir, "go.mod")); err != nil {
		return nil, err
	}
	m.Requires = mod.Require
	return os.ReadFile(filepath.Join(dir, "go.sum")) //nolint:gosec // a file of this module
}

// tidy limits go.mod to the modules that the service and its tests use. Unlike go mod tidy, it does not
// download the modules that the tests of these modules use.
func (m *newModule) tidy(ctx context.Context) error {
	out, err := goCommand(ctx, m.Name, "list", "-mod=mod", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	if err != nil {
		return err
	}
	used := strings.Fields(string(out))
	m.Requires = slices.DeleteFunc(m.Requires, func(r moduleVersion) bool { return !slices.Contains(used, r.Path) })
	slices.SortFunc(m.Requires, func(a, b moduleVersion) int { return strings.Compare(a.Path, b.Path) })
	files, err := m.render()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(files, func(f newFile) bool { return f.name == "go.mod" })
	return os.WriteFile(filepath.Join(m.Name, "go.mod"), files[i].content, 0o644) //nolint:gosec // source code, which other users may read
}

// goCommand runs the go command in a directory. The error contains its messages.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are checked
	cmd.Dir = dir
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return out, nil
}

func goJSON(ctx context.Context, into any, args ...string) error {
	out, err := goCommand(ctx, ".", args...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

type newFile struct {
	name    string
	content []byte
}

func (m *newModule) render() (files []newFile, err error) {
	parsed, err := template.New("").Option("missingkey=error").ParseFS(templates, "template/*.tmpl")
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(templates, "template")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var b bytes.Buffer
		if err = parsed.ExecuteTemplate(&b, e.Name(), m); err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		if strings.HasSuffix(name, "ignore") {
			name = "." + name // a hidden file would not be embedded
		}
		files = append(files, newFile{name, b.Bytes()})
	}
	return files, nil
}

// write writes the files into a directory. It writes nothing if one of them exists.
func write(dir string, files []newFile) error {
	var exist []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			exist = append(exist, f.name)
		}
	}
	if len(exist) > 0 {
		return fmt.Errorf("the directory %s already has %s; nothing is written", dir, strings.Join(exist, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // source code, which other users may read
		return err
	}
	for _, f := range files {
		file, err := os.OpenFile(filepath.Join(dir, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as above
		if err != nil {
			return err
		}
		_, err = file.Write(f.content)
		if err = cmp.Or(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}
