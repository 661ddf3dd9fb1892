# make check: what a newcomer runs first: formatting, clippy, and all tests that need neither root nor mounts nor servers.
# make test: installs the Debian packages that the tests need (as root), then runs all tests.
# make campaign: long campaigns, of which make test runs samples; CAMPAIGN_SEEDS trees for each pair of file systems, and as many
# times 600 system calls that fail and 120 power cuts; MIRROR_SEEDS rounds of what mirrors are tested by; SHARE_SEEDS kills, trees and
# so on of the suites that make test runs a third of; CHAOS_SEEDS accidents of each kind; CAST_SEEDS casts with accidents, and as many
# receivers that are killed.
# make static: a statically linked binary, which --deploy copies to other hosts.
# make shim: the preloaded library for systems with an old C library (glibc from 2.17); for newer ones make build makes it.
# make install: builds, and copies the program, the shim, units, manual pages and completions below PREFIX, in DESTDIR.
# make install-files: the same with what is built, from the folder FROM.
# make packages: a tarball, a deb and an rpm of the static program, and their checksums, in target/packages.
# make book: a site with search of all pages, in target/book/site; builds mdbook the first time, which takes some minutes.
# make lint: formatting and clippy, warnings denied, and the subjects of commits. make bench: side by side with peers, about 100 minutes.
# make fuzz: each fuzz target for FUZZ_SECONDS, three at a time; needs a C++ compiler. .ci/run takes FUZZ_SECONDS=20.

PACKAGES = build-essential rsync acl attr libcap2-bin e2fsprogs xfsprogs btrfs-progs util-linux strace procps time b3sum xxhash \
	openssh-server openssh-client sshfs iproute2 rabbitmq-server openssl sqlite3 slurmctld slurmd slurm-client munge \
	gridengine-master gridengine-exec gridengine-client libpam0g-dev curl lftp \
	bash dash ksh tcsh fish git groff-base mandoc rpm cpio perl python3 python3-venv openmpi-bin libopenmpi-dev

# What has test suites that the shim is tested by: GLib's, zlib's, and, of the release that the machine has, CPython's.
SUITES = libglib2.0-tests zlib1g-dev

# What MetPX-Sarracenia of Python is tested against, in a folder of its own.
SR3 = $(or $(CARGO_TARGET_DIR),target)/sr3
SR3_VERSION = 3.3.1

FUZZ_SECONDS = 60
CAMPAIGN_SEEDS = 5

.PHONY: build install install-files static shim packages check test test-packages test-broker campaign fuzz lint bench docs book

build:
	cargo build --release

PREFIX = /usr
DESTDIR =
FROM = $(or $(CARGO_TARGET_DIR),target)/release
TO = $(DESTDIR)$(PREFIX)

install: build
	$(MAKE) install-files

install-files:
	install -D -m 755 -s $(FROM)/driftless $(TO)/bin/driftless
	install -D -m 644 $(FROM)/libdriftless_shim.so $(TO)/lib/driftless/libdriftless_shim.so
	install -d $(TO)/lib/systemd/system $(TO)/share/man/man1 $(TO)/share/bash-completion/completions \
		$(TO)/share/zsh/site-functions $(TO)/share/fish/vendor_completions.d
	for unit in mirror@ watch@ node@ gateway ftps; do sed 's|/usr/bin/driftless|$(PREFIX)/bin/driftless|' systemd/driftless-$$unit.service \
		>$(TO)/lib/systemd/system/driftless-$$unit.service || exit; done
	$(TO)/bin/driftless generate pages | \
		awk -v to=$(TO)/share/man/man1/ '/^\.\\" File: / { file = to $$3; next } { print >file }'
	$(TO)/bin/driftless generate bash >$(TO)/share/bash-completion/completions/driftless
	$(TO)/bin/driftless generate zsh >$(TO)/share/zsh/site-functions/_driftless
	$(TO)/bin/driftless generate fish >$(TO)/share/fish/vendor_completions.d/driftless.fish

# One program without libraries of its own, for hosts with others (sync --deploy), and without debug information, since it crosses
# lines. With a target named, the flag does not reach what is built for this machine to build with, such as procedural macros (rustc
# book, "Codegen options", target-feature).
TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
STATIC = $(or $(CARGO_TARGET_DIR),target)/$(TRIPLE)/release/driftless

static:
	CARGO_ENCODED_RUSTFLAGS='-Ctarget-feature=+crt-static' CARGO_PROFILE_RELEASE_STRIP=debuginfo \
		cargo build --release -p driftless --target $(TRIPLE)
	@if readelf --program-headers $(STATIC) | grep -q INTERP; then echo "$(STATIC) is not static" >&2; exit 1; fi
	@$(STATIC) --version >/dev/null && echo "$(STATIC) is linked statically"

# No symbol of the C library may be newer than the oldest one that it is for: 2.17 is that of RHEL 7.
SHIM = $(or $(CARGO_TARGET_DIR),target)/shim/libdriftless_shim.so

shim:
	DRIFTLESS_SHIM_OLD_GLIBC=1 cargo build --profile shim -p driftless-shim
	@newest=$$(readelf --dyn-syms --wide $(SHIM) | sed -n 's/.*@GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1); \
	if [ "$$(printf '%s\n' 2.17 $$newest | sort -V | tail -n 1)" != 2.17 ]; then \
	echo "$(SHIM) needs glibc $$newest" >&2; exit 1; fi; echo "$(SHIM) needs glibc $$newest"

# What is built for other systems runs on each of them.
packages: static shim
	@from=$$(mktemp -d) && trap 'rm -rf $$from' EXIT && cp $(STATIC) $(SHIM) $$from && \
	packaging/build $$from $(or $(CARGO_TARGET_DIR),target)/packages && ls $(or $(CARGO_TARGET_DIR),target)/packages

# Servers are installed and not started (policy-rc.d, deb-systemd-invoke(1p)): the tests start their own, elsewhere.
define install
missing=; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then trap "rm -f $$policy" EXIT INT TERM; printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; fi; \
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy $(2) $$missing; fi
endef

test-packages:
	@$(call install,$(PACKAGES))
	@python=$$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	$(call install,$(SUITES) libpython$$python-testsuite,--no-install-recommends)
	@if [ ! -e $(SR3)/version-$(SR3_VERSION) ]; then rm -rf $(SR3) && python3 -m venv $(SR3) && \
	$(SR3)/bin/pip install -q 'metpx-sr3[amqp]==$(SR3_VERSION)' && touch $(SR3)/version-$(SR3_VERSION); fi

# What holds for two trees on one machine holds for them over ssh. The first of these suites go all ways, the next are pushed by root;
# those that take long are left to make campaign, which has all of them pushed and pulled.
OVER_SSH_ALL_WAYS = semantics selection
OVER_SSH = removal displaced guards verify unkept folding spelling inplace locks mounts dead_mounts refusals doubt faults answers \
	marks unfinished access shown
OVER_SSH_LONG = closed grain links signals output audit misbehaving matrix nth_call anytree filesystems property kill races power
suites = $(foreach suite,$(1),--test $(suite))

# Tests wait for servers, clocks and disks more than they compute: four at a time in each of two or three programs.
export RUST_TEST_THREADS ?= 4

# All in one set of packages: for another one cargo would build the libraries anew, with other features. The feature adds one library
# (libpam) to the program, and changes no other one: make check goes without it.
PACKAGES_OF_ALL = --workspace --exclude driftless-queue
FTPS = --features driftless/ftps
OF_ALL = $(PACKAGES_OF_ALL) $(FTPS)
TEST = cargo test $(OF_ALL)

# The tests of the libraries, whole runs between trees in memory, and the rules of the code.
check: lint
	cargo test $(PACKAGES_OF_ALL) --exclude driftless-testkit --lib --test fake_trees --test coordinator --test edges

# Two programs at a time, and a third one of those that mostly wait; the longest first.
TEST_ALL = crates/testkit/run_tests.py $(OF_ALL)

test: test-packages
	$(TEST_ALL)
	$(TEST_ALL) $(CHAOS)
	DRIFTLESS_TEST_OVER=push $(TEST_ALL) $(call suites,$(OVER_SSH_ALL_WAYS) $(OVER_SSH))
	DRIFTLESS_TEST_OVER='pull push-user pull-user' $(TEST_ALL) $(call suites,$(OVER_SSH_ALL_WAYS))

# What the queues promise, on a broker that is restarted under load, which it does not always survive in time.
test-broker: test-packages
	cargo test -p driftless-queue

# Suites of a mirror that make test runs, with more rounds, kills and seeds.
OF_MIRRORS = mirror mirror_moves cycles listed_cycles simulation
MIRROR_SEEDS = 200

# Suites of which make test runs about a third.
OF_SHARES = kill property jobs
SHARE_SEEDS = 50

# Suites of cast that make test runs, with more casts and kills.
OF_CASTS = accidents kills
CAST_SEEDS = 40

# Rounds of random accidents of jobs, of which make test runs one; nodes that come up late are left to this campaign.
JOB_SEEDS = 30

# Accidents of each kind in movers_chaos, of which make test runs at most four.
CHAOS_SEEDS = 10
CHAOS = --test movers_chaos -- --ignored --test-threads=5

# Each campaign prints its figures and fails if one of its runs did; all are run, and all suites that go over ssh each way.
CAMPAIGNS = matrix nth_call injected power movers_model promises slurm_runs

campaign: test-packages
	@failed=; for name in $(CAMPAIGNS); do \
	DRIFTLESS_SEEDS=$(CAMPAIGN_SEEDS) $(TEST) --test $$name -- --ignored --nocapture || failed="$$failed $$name"; done; \
	DRIFTLESS_SEEDS=$(MIRROR_SEEDS) $(TEST) --no-fail-fast $(call suites,$(OF_MIRRORS)) || failed="$$failed mirrors"; \
	DRIFTLESS_SEEDS=$(SHARE_SEEDS) $(TEST) --no-fail-fast $(call suites,$(OF_SHARES)) || failed="$$failed shares"; \
	DRIFTLESS_SEEDS=$(CAST_SEEDS) $(TEST) --no-fail-fast $(call suites,$(OF_CASTS)) || failed="$$failed casts"; \
	DRIFTLESS_SEEDS=$(JOB_SEEDS) $(TEST) --no-fail-fast --test jobs -- --include-ignored || failed="$$failed jobs"; \
	DRIFTLESS_SEEDS=$(CHAOS_SEEDS) $(TEST) $(CHAOS) || failed="$$failed movers_chaos"; \
	for way in push pull; do DRIFTLESS_TEST_OVER=$$way $(TEST) --no-fail-fast \
	$(call suites,$(OVER_SSH_ALL_WAYS) $(OVER_SSH) $(OVER_SSH_LONG)) || failed="$$failed $$way"; done; \
	if [ -n "$$failed" ]; then echo "campaigns with failures:$$failed" >&2; exit 1; fi

fuzz: test-packages
	FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run

lint:
	.ci/subjects
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets $(FTPS) -- -D warnings
	cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; else \
	echo "cargo-deny is not installed: licences and sources are left to the tests"; fi

bench:
	bench/run.py

docs:
	cargo run -q -p driftless -- generate reference > docs/cli.md
	cargo run -q -p driftless -- generate other-tools > docs/other-tools.md

MDBOOK_VERSION = 0.5.4
MDBOOK = $(or $(CARGO_TARGET_DIR),target)/mdbook-$(MDBOOK_VERSION)

$(MDBOOK)/bin/mdbook:
	cargo install --locked --root $(MDBOOK) --version $(MDBOOK_VERSION) --no-default-features --features search mdbook

book: $(MDBOOK)/bin/mdbook
	packaging/book $(or $(CARGO_TARGET_DIR),target)/book $(MDBOOK)/bin/mdbook
