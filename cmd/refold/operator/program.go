// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
)

// The exit statuses of a Program.
const (
	// ExitOK: no problem was found.
	ExitOK = 0
	// ExitProblems: the command found problems, such as damaged data, a state that differs from its
	// events, or a missed goal.
	ExitProblems = 1
	// ExitFailed: the command could not run, for example because of wrong arguments, or a directory
	// that is missing or in use.
	ExitFailed = 2
)

// DefaultJournal is the default of --journal: the directory of the bank example.
const DefaultJournal = "leveldb:./bank-data"

// journalEnv names the environment variable that replaces DefaultJournal.
const journalEnv = "REFOLD_JOURNAL"

// Program is a command line with subcommands. Run a Program only once.
type Program struct {
	// Name is the name of the program in help texts and messages. Defaults to "refold".
	Name string
	// About describes the program in the help text. Defaults to "Inspect the journals of Refold."
	About string
	// Entities are the entity types for rebuild and verify. Defaults to none.
	Entities []Linked
	// Commands are additional subcommands. Defaults to none.
	Commands []Command
	// Journal is the default of --journal. Defaults to the environment variable REFOLD_JOURNAL, or
	// DefaultJournal without it.
	Journal string
	// Databases open journals that are not directories of LevelDB, such as pgjournal.Database().
	// Defaults to none.
	Databases []Database
	// Open opens the journal that --journal names, OpenTarget the one that copy writes to. Default
	// to LevelDB and Databases.
	Open, OpenTarget func(ctx context.Context, address string) (*Source, error)
	// Stdout and Stderr receive the output. Default to those of the process.
	Stdout, Stderr io.Writer

	shown string // the default of --journal in help texts
}

// Command is a subcommand of a Program.
type Command struct {
	// Name and Help are the name and a one-line description. Required.
	Name, Help string
	// Grammar points to a struct whose fields are flags and arguments, in the notation of
	// github.com/alecthomas/kong, with a method Run(context.Context, *Env) error. Required.
	Grammar any
}

// Env is the environment of a command.
type Env struct {
	// Name is the name of the program.
	Name string
	// Stdout and Stderr receive the output.
	Stdout, Stderr io.Writer
	// Terminal reports whether Stderr is a terminal, which can show progress.
	Terminal bool

	entities         []Linked
	databases        []Database
	open, openTarget func(ctx context.Context, address string) (*Source, error)
}

// Linked is an entity type whose Go code is part of the program, so that its events can be decoded
// and replayed. Entity returns one.
type Linked struct{ typ inspect.Type }

// Entity adds an entity type to the program.
func Entity[S, E any](typ eventsourcing.Type[S, E]) Linked { return Linked{inspect.TypeOf(typ)} }

func (l *Linked) check() error {
	if l.typ.Fold == nil {
		return errors.New("operator: the zero value of Linked is unusable: call Entity")
	}
	if err := l.typ.Check(); err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	return nil
}

func typesOf(entities []Linked) []inspect.Type {
	types := make([]inspect.Type, len(entities))
	for i := range entities {
		types[i] = entities[i].typ
	}
	return types
}

// linkedOf returns the type of the entity with a persistence ID, nil if it is not among these.
func linkedOf(entities []Linked, persistenceID string) *Linked {
	for i := range entities {
		if l := &entities[i]; inspect.TypeOfID([]inspect.Type{l.typ}, persistenceID) != nil {
			return l
		}
	}
	return nil
}

// ErrProblems is returned by a command that has already printed the problems that it found. The
// program prints no further message and exits with ExitProblems.
var ErrProblems = errors.New("operator: problems were found")

// Main runs the program with the arguments of the process and exits. A program that contains entity
// types calls it in its main function. Main opens only LevelDB journals; for databases, use a
// Program with Databases.
//
//	func main() {
//		operator.Main(operator.Entity(AccountType(rates)))
//	}
func Main(entities ...Linked) {
	os.Exit(Program{Entities: entities}.Main())
}

// Run runs a program with the given arguments, without the program name, and returns the exit
// status.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, entities ...Linked) int {
	return Program{Entities: entities, Stdout: stdout, Stderr: stderr}.Run(ctx, args)
}

// Main runs the program with the arguments of the process, until it ends or is interrupted, and
// returns the exit status.
func (p Program) Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.Run(ctx, os.Args[1:])
}

func (p Program) withDefaults() Program {
	p.Name = cmp.Or(p.Name, "refold")
	p.About = cmp.Or(p.About, "Inspect the journals of Refold.")
	p.shown = Redact(p.Journal)
	if p.Journal == "" {
		p.Journal, p.shown = cmp.Or(os.Getenv(journalEnv), DefaultJournal), journalEnv+", or "+DefaultJournal+" without it"
	}
	if p.Stdout == nil {
		p.Stdout = os.Stdout
	}
	if p.Stderr == nil {
		p.Stderr = os.Stderr
	}
	return p
}

type commands struct {
	Events    eventsCommand    `cmd:"" help:"List persistence IDs, or the events of one."`
	Snapshots snapshotsCommand `cmd:"" help:"List snapshots, or print one."`
	Verify    verifyCommand    `cmd:"" help:"Check that no data is missing or damaged."`
	Rebuild   rebuildCommand   `cmd:"" help:"Replay all events of an entity and compare the result with its state."`
	Tail      tailCommand      `cmd:"" help:"Follow the events of all entities."`
	Copy      copyCommand      `cmd:"" help:"Copy a journal to another one, of any kind."`

	Version kong.VersionFlag `help:"Print the version, the commit and the release of Go."`
}

const exitStatus = `Exit status: 0 if no problem was found; 1 if problems were found or a goal was missed; 2 if the command failed.`

// Run runs the program with the given arguments, without the program name, and returns the exit
// status. The command ends when ctx does.
func (p Program) Run(ctx context.Context, args []string) int {
	p = p.withDefaults()
	return p.run(ctx, args, isTerminal(p.Stderr))
}

func (p Program) run(ctx context.Context, args []string, terminal bool) int {
	env := &Env{
		Name: p.Name, Stdout: p.Stdout, Stderr: p.Stderr, Terminal: terminal,
		entities: p.Entities, databases: p.Databases, open: p.Open, openTarget: p.OpenTarget,
	}
	helped, out := false, p.Stdout
	if len(args) == 0 {
		args, out = []string{"--help"}, p.Stderr
	} else if args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	options := []kong.Option{
		kong.Name(p.Name), kong.Description(p.About + "\n\n" + exitStatus),
		kong.Vars{"journal": p.Journal, "shown": p.shown, "version": versionOf(p.Name)},
		kong.Writers(out, p.Stderr), kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(env),
	}
	var more []Command
	for i := range p.Databases {
		more = append(more, p.Databases[i].Commands...)
	}
	for _, c := range append(more, p.Commands...) {
		if t := reflect.TypeOf(c.Grammar); t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
			return env.exit(fmt.Errorf("command %q: Grammar is a %T, must be a pointer to a struct", c.Name, c.Grammar))
		}
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Grammar))
	}
	parser, err := kong.New(&commands{}, options...)
	if err != nil {
		return env.exit(fmt.Errorf("invalid command grammar: %w", err))
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped && out == p.Stdout:
		return ExitOK
	case helped:
		return ExitFailed
	case err != nil:
		return env.exit(fmt.Errorf("%w (see %s --help)", err, p.Name))
	}
	return env.exit(parsed.Run())
}

func (e *Env) exit(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrProblems):
		return ExitProblems
	}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	e.note("%s", first)
	for line := range strings.Lines(rest) {
		_, _ = fmt.Fprintln(e.Stderr, jsontext.Printable(Redact(strings.TrimSuffix(line, "\n"))))
	}
	if inspect.Damaged(err) {
		return ExitProblems
	}
	return ExitFailed
}

// note prints a message for people to standard error.
func (e *Env) note(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, jsontext.Printable(Redact(fmt.Sprintf(format, args...))))
}

func (e *Env) status() *console.Status {
	return console.NewStatus(e.Stderr, e.Terminal, 100*time.Millisecond)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func versionOf(name string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return versionText(name, info)
}

// versionText describes a program: its version, that of Refold, the commit and the release of Go.
func versionText(name string, info *debug.BuildInfo) string {
	const unknown = "(unknown version)"
	version := inspect.RefoldVersion(info)
	lines := []string{name + " " + cmp.Or(info.Main.Version, unknown)}
	if info.Main.Path != inspect.RefoldPath {
		lines = append(lines, "refold "+cmp.Or(version, unknown))
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		if settings["vcs.modified"] == "true" {
			commit += " with changes"
		}
		lines = append(lines, "commit "+commit+", "+settings["vcs.time"])
	}
	return strings.Join(append(lines, info.GoVersion+" "+settings["GOOS"]+"/"+settings["GOARCH"]), "\n")
}
