"""Compiles the AIE kernels' calls against aie_api's real headers, without a compiler for the cores.

    python tests/npu/check_aie_headers.py PATH     # PATH holds aie_api/aie.hpp

A clang of 19 or newer for this machine reads the headers; what they want of the cores' compiler is
declared here: types by the names that the headers give them, intrinsics as functions that take and
give anything, found by what the compiler misses. That shows whether names, parameters, concepts and
vector sizes of every call are right, for both generations. It shows nothing of the code that Peano
makes, or of its speed. Exit code 1 where an error is in a kernel's own lines, 2 without clang.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "kernels" / "aie"
ARCHITECTURES = {"aie2": 20, "aie2p": 21}
FLAGS = (
    *("-std=c++20", "-fsyntax-only", "-ferror-limit=0", "-w"),
    "-Wno-missing-template-arg-list-after-template-kw",
    *("-D__AIENGINE__=2", "-D__AIE_MODEL_VERSION__=10600", "-D__AIE_API_AIE_ADF_HPP__", "-DNDEBUG"),
)
ROUNDS = 12  # of finding what is missing

COMPLEX = {"cint4": "char", "cint16": "short", "cint32": "int", "cfloat": "float"}
ACCUMULATORS = [f"{c}acc{n}" for c in ("", "c") for n in ("16", "24", "32", "40", "48", "56", "64")]

# What the cores' compiler has of its own: attributes and hints that mean nothing here.
LANGUAGE = """
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
typedef __bf16 bfloat16;
struct Any {
  template <class T> operator T() const { return *(T*)0; }
  template <class I> Any operator[](I) const { return {}; }
};
struct int4 { signed char v; };
struct uint4 { signed char v; };
typedef int4 int4_t;
typedef uint4 uint4_t;
struct cbfloat16 { typedef __bf16 T; T real, imag; };
struct accfloat {};
struct caccfloat {};
using addr_t = unsigned;
enum { rnd_floor, rnd_ceil, rnd_sym_floor, rnd_sym_ceil, rnd_neg_inf = 8, rnd_pos_inf, rnd_sym_zero,
       rnd_sym_inf, rnd_conv_even, rnd_conv_odd };
enum class aie_dm_resource { none, a, b, c, d, ab, ac, ad, bc, bd, cd, stack };
template <class T> using aie_dm_resource_remove_t = std::remove_cvref_t<T>;
template <class T> struct aie_dm_resource_remove { using type = std::remove_cvref_t<T>; };
template <class T, aie_dm_resource R> using aie_dm_resource_set_t = T;
template <class T, aie_dm_resource R> struct aie_dm_resource_set { using type = T; };
template <class T> struct aie_dm_resource_get {
  static constexpr aie_dm_resource value = aie_dm_resource::none;
};
template <class T> inline constexpr auto aie_dm_resource_get_v = aie_dm_resource::none;
template <class T> inline constexpr bool aie_dm_resource_is_none_v = true;
struct sparse_fifo_t {};
struct fifo_state_t { int pos; sparse_fifo_t fifo; };
struct dims_2d_t { int inc1, inc2, num1, count1; template <class... A> dims_2d_t(A...) {} };
struct dims_3d_t {
  int inc1, inc2, inc3, num1, num2, count1, count2;
  template <class... A> dims_3d_t(A...) {}
};
inline auto sparse_reset(...) { return Any{}; }
inline auto sparse_fill(...) { return Any{}; }
#define chess_manifest(...) false
#define chess_copy(x) x
#define chess_const(x) false
#define chess_dont_care(x) x {}
#define __aie_copy(x) x
#define get_coreid(...) 0u
#define property(x)
"""
PLACES = ("a", "b", "c", "d", "ab", "ac", "ad", "bc", "bd", "cd", "stack")
HINTS = (
    *("chess_storage", "chess_loop_range", "chess_unroll_loop", "chess_separator_scheduler"),
    *("chess_separator", "chess_memory_fence", "chess_report", "chess_error", "chess_warning"),
    *("__aie_register_keep", "chess_separator_scheduler_local"),
)
MARKS = (
    *("chess_protect_access", "chess_prepare_for_pipelining", "chess_flatten_loop"),
    *("chess_unroll_loop_preamble", "chess_no_hw_loop", "keep_in_registers"),
    *(f"__aie_dm_resource_{place}" for place in PLACES),
)

# A name of the compiler's own, in the words of an error about it.
FUNCTION = re.compile(r"error: no member named '(\w+)' in the global namespace")
UNDECLARED = re.compile(r"error: use of undeclared identifier '(\w+)'")
CONSTANT = re.compile(r"T\d+|DINTLV|INTLV|OP_|crUPS|[A-Z][A-Z0-9_]+")
CONVERSION = re.compile(r"(undef|as|to_v|extract|concat|set|broadcast|ups|srs)_?\w+")
TYPE = re.compile(r"error: unknown type name '(v\d+\w+)'")


def language(headers: Path) -> str:
    """Declarations of the cores' types, with the vectors that the headers name."""
    named: set[str] = set()
    for generation in ("aie2", "aie2p"):
        for path in (headers / "aie_api/detail" / generation).glob("*native_types.hpp"):
            named.update(re.findall(r"using type\s*=\s*(v\d\w*)\s*;", path.read_text()))
    lines = [LANGUAGE]
    lines += [f"struct {n} {{ typedef {t} T; T real, imag; }};" for n, t in COMPLEX.items()]
    lines += [f"struct {name} {{}};" for name in ACCUMULATORS]
    lines += [f"#define {hint}(...)" for hint in HINTS] + [f"#define {mark}" for mark in MARKS]
    lines += [vector(name) for name in sorted(named)]
    return "\n".join(lines)


def vector(name: str) -> str:
    """A vector's declaration: made from anything, and read as anything."""
    return (
        f"struct {name} {{ {name}() = default; template <class T> explicit {name}(const T&) {{}} "
        "template <class U> explicit operator U() const { return *(U*)0; } "
        "int operator[](int) const { return 0; } char bytes[1]; };"
    )


def compile_kernel(
    clang: str, headers: Path, architecture: int, source: Path, prelude: Path
) -> str:
    """What the compiler says of a kernel's source."""
    command = [clang, *FLAGS, f"-D__AIE_ARCH__={architecture}", f"-I{headers}", f"-I{KERNELS}"]
    command += ["-include", str(prelude), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def completed(
    clang: str, headers: Path, architecture: int, sources: Sequence[Path], room: Path
) -> Path:
    """A prelude with everything that the sources' headers want of the cores' compiler."""
    prelude, base = room / f"prelude{architecture}.h", language(headers)
    found: set[str] = set()
    for source in sources:
        for _ in range(ROUNDS):
            prelude.write_text("\n".join([base, *sorted(found)]))
            errors = compile_kernel(clang, headers, architecture, source, prelude)
            names = set(FUNCTION.findall(errors))
            missing = UNDECLARED.findall(errors)
            constants = {name for name in missing if CONSTANT.match(name)}
            names |= {name for name in missing if CONVERSION.match(name)} - constants
            lines = {f"static constexpr int {name} = 0;" for name in constants}
            lines |= {f"template <class... A> Any {n}(A&&...) {{ return {{}}; }}" for n in names}
            lines |= {f"struct {name} {{}};" for name in TYPE.findall(errors)}
            if lines <= found:
                break
            found |= lines
    return prelude


def main() -> int:
    """Check every kernel for both generations; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("headers", type=Path, metavar="PATH", help="the folder with aie_api in it")
    parser.add_argument("--clang", default="clang++-19", help="(default: %(default)s)")
    given = parser.parse_args()
    if not (given.headers / "aie_api" / "aie.hpp").is_file():
        parser.error(f"{given.headers} holds no aie_api/aie.hpp")
    if shutil.which(given.clang) is None:
        print(f"{given.clang} is not installed (apt install clang-19)", file=sys.stderr)
        return 2
    sources = sorted(KERNELS.glob("*.cc"))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, number in ARCHITECTURES.items():
            prelude = completed(given.clang, given.headers, number, sources, Path(folder))
            for source in sources:
                errors = [
                    line
                    for line in compile_kernel(
                        given.clang, given.headers, number, source, prelude
                    ).splitlines()
                    if "error:" in line
                ]
                # Where the headers fail by themselves it is for what is declared above.
                own = [line for line in errors if line.startswith(str(KERNELS))]
                wrong += len(own)
                print(f"{name:6}{source.stem:16}{len(own)} errors, {len(errors)} with the headers'")
                print("".join(f"    {line}\n" for line in own), end="")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
