#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: identity.sh [COMPILER_LINES]
# Prints what a build of this tree may call itself: COMMIT DIRTY KERNELS, and if there is no commit, the reason.
# COMMIT is that of git alone where git knows that no source has changed; else "+" and a hash of the sources follow it,
# or it is src-<hash>. DIRTY is 0, 1, or -1 where nobody can tell. KERNELS is a hash of what the
# library is compiled from, and one of the compiler lines.
# STEPBENCH_COMMIT, which is anybody's word, goes before an archive's commit (make dist), and that before git's.
set -u
export LC_ALL=C
unset CDPATH # With it set, cd prints a line, or goes to another checkout.
cd "$(dirname "$0")/../.." || exit 1

# The archive's commit differs between a checkout and its archive; hidden files and those that end in ~ are an editor's.
hash_of() { # PATH...
    find -L "$@" -type f ! -path common/build/commit ! -name '.*' ! -name '*~' -print 2>/dev/null | sort | tr '\n' '\0' |
        xargs -0 sha256sum | sha256sum | cut -c 1-12
}

ask_git() {
    command -v git >/dev/null || {
        why='git is not installed'
        return
    }
    # GIT_DIR and its like may be of another tree.
    # shellcheck disable=SC2046 # names are words
    unset $(git rev-parse --local-env-vars)
    if ! said=$(git rev-parse --show-prefix 2>&1); then
        why=$said
    elif [ -n "$said" ]; then
        why="the repository around this folder is not stepbench's"
    elif ! said=$(git rev-parse --short=12 --verify HEAD 2>&1); then
        why=$said
    else
        commit=$said
        changed=$(git --no-optional-locks status --porcelain --untracked-files=all -- Makefile bench common kernels \
            reference 2>/dev/null) && { [ -z "$changed" ] && dirty=0 || dirty=1; }
    fi
}

commit='' dirty=-1 why=''
if [ -n "${STEPBENCH_COMMIT-}" ]; then
    commit=$(printf %s "$STEPBENCH_COMMIT" | tr -c 'A-Za-z0-9._-' _)
elif archived=$(grep -oxE '[0-9a-f]{40}' common/build/commit 2>/dev/null); then
    commit=$(printf %s "$archived" | cut -c 1-12)
else
    ask_git
fi
sources=$(hash_of Makefile bench common kernels reference)
[ "$dirty" = 0 ] || commit=${commit:-src}$([ -z "$commit" ] && echo - || echo +)$sources
kernels=$(hash_of kernels common/core/numeric.h common/core/rng.[ch])-$(printf %s "$*" | sha256sum | cut -c 1-12)
printf '%s %s %s %s\n' "$commit" "$dirty" "$kernels" "$(printf %s "$why" | tr -s '\n\t ' ' ')"
