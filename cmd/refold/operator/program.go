// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/vbauerster/mpb/v8/cwriter"
)

// The exit statuses of a Program.
const (
	// ExitOK says that all is well.
	ExitOK = 0
	// ExitProblems says that what was looked at is not as it should be: damaged
	// data, a state that does not refold, a goal that is not met.
	ExitProblems = 1
	// ExitFailed says that it could not be looked at: a mistake in the
	// arguments, a directory that is missing or in use.
	ExitFailed = 2
)

// DefaultJournal is where the commands look unless --journal says otherwise: it
// is where the bank example keeps its data.
const DefaultJournal = "leveldb:./bank-data"

// Program is the operator's command: a command line with subcommands. It is
// used once.
type Program struct {
	// Name is what the program is called by, for help and messages. Defaults to
	// "refold".
	Name string
	// About is what the program is for, for help. Defaults to "Look into the journals of Refold."
	About string
	// Entities are the types that rebuild and verify know. Defaults to none.
	Entities []Linked
	// Commands are further subcommands. Defaults to none.
	Commands []Command
	// Journal is the default of --journal. Defaults to DefaultJournal.
	Journal string
	// Databases open journals that are not directories of LevelDB, such as pgjournal.Database().
	// Defaults to none.
	Databases []Database
	// Open opens the journal that --journal names, OpenTarget the one that copy writes to. Default
	// to LevelDB and Databases.
	Open, OpenTarget func(ctx context.Context, address string) (*Source, error)
	// Stdout and Stderr are written to. Default to those of the process.
	Stdout, Stderr io.Writer
}

// Command is a subcommand of a Program.
type Command struct {
	// Name and Help are its name and one line about it. Required.
	Name, Help string
	// Grammar points to a struct whose fields are its flags and arguments, in
	// the notation of github.com/alecthomas/kong, with a method
	// Run(context.Context, *Env) error. Required.
	Grammar any
}

// Env is what a command runs in.
type Env struct {
	// Name is what the program is called by.
	Name string
	// Stdout and Stderr are written to.
	Stdout, Stderr io.Writer
	// Terminal says that Stderr is a terminal, which may show progress.
	Terminal bool

	entities         []Linked
	databases        []Database
	open, openTarget func(ctx context.Context, address string) (*Source, error)
}

// ErrProblems is returned by a command that has shown what is wrong. The program
// prints nothing more and ends with ExitProblems.
var ErrProblems = errors.New("operator: problems were found")

// Main runs the program with the arguments of the process and ends the process.
// It is the main function of a program that knows the entities:
//
//	func main() {
//		operator.Main(operator.Entity(AccountType(rates)))
//	}
func Main(entities ...Linked) {
	os.Exit(Program{Entities: entities}.Main())
}

// Run runs the program with the given arguments, without the program's name, and
// returns the exit status.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, entities ...Linked) int {
	return Program{Entities: entities, Stdout: stdout, Stderr: stderr}.Run(ctx, args)
}

// Main runs the program with the arguments of the process, until an interrupt at
// the latest, and returns the exit status.
func (p Program) Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.Run(ctx, os.Args[1:])
}

func (p Program) withDefaults() Program {
	if p.Name == "" {
		p.Name = "refold"
	}
	if p.About == "" {
		p.About = "Look into the journals of Refold."
	}
	if p.Journal == "" {
		p.Journal = DefaultJournal
	}
	if p.Stdout == nil {
		p.Stdout = os.Stdout
	}
	if p.Stderr == nil {
		p.Stderr = os.Stderr
	}
	return p
}

// commands are the subcommands that every program has.
type commands struct {
	Events    eventsCommand    `cmd:"" help:"List persistence IDs, or the events of one."`
	Snapshots snapshotsCommand `cmd:"" help:"List snapshots, or print one."`
	Verify    verifyCommand    `cmd:"" help:"Check that nothing is missing or damaged."`
	Rebuild   rebuildCommand   `cmd:"" help:"Refold an entity from its events and compare."`
	Tail      tailCommand      `cmd:"" help:"Follow the events of all entities, as they are stored."`
	Copy      copyCommand      `cmd:"" help:"Copy a journal to another one, of any kind."`
}

const exitStatus = `Exit status: 0 if all is well; 1 if problems were found, or a goal is not met; 2 if it could not be done.`

// Run runs the program with the given arguments, without the program's name, and
// returns the exit status. A context that ends ends the command.
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
	switch {
	case len(args) == 0:
		args, out = []string{"--help"}, p.Stderr
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	options := []kong.Option{
		kong.Name(p.Name), kong.Description(p.About + "\n\n" + exitStatus),
		kong.Vars{"journal": p.Journal, "shown": Redact(p.Journal)},
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
			return env.exit(fmt.Errorf("command %q: Grammar is a %T, it has to be a pointer to a struct", c.Name, c.Grammar))
		}
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Grammar))
	}
	parser, err := kong.New(&commands{}, options...)
	if err != nil {
		return env.exit(fmt.Errorf("the command line is broken: %w", err))
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped && out == p.Stdout:
		return ExitOK
	case helped:
		return ExitFailed
	case err != nil:
		return env.exit(fmt.Errorf("%w (%s --help shows what there is)", err, p.Name))
	}
	return env.exit(parsed.Run())
}

// exit prints an error and returns the exit status that it stands for.
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
		_, _ = fmt.Fprintln(e.Stderr, printable(Redact(strings.TrimSuffix(line, "\n"))))
	}
	if damaged(err) {
		return ExitProblems
	}
	return ExitFailed
}

// isTerminal tells whether people look at what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && cwriter.IsTerminal(int(f.Fd()))
}
