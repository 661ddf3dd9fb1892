# make test: installs the Debian packages that the tests need (as root), then runs all tests.
# make lint: formatting and clippy, warnings denied. make bench: side by side with peers, about 55 minutes.

PACKAGES = build-essential rsync acl attr libcap2-bin e2fsprogs xfsprogs btrfs-progs util-linux strace procps time b3sum xxhash \
	openssh-server openssh-client iproute2

.PHONY: build test lint bench packages docs

build:
	cargo build --release

packages:
	@missing=; for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy $$missing; fi

test: packages
	cargo test --workspace

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench:
	bench/run.py

docs:
	cargo run -q -p driftless -- generate reference > docs/cli.md
