//! Tells the code which versions of its libraries cargo chose, and compiles ISA-L's igzip from the sources that come with
//! `isal-sys`. That crate's own build fails without autotools and an assembler; this one needs neither.
//!
//! With nasm, igzip has its AVX2 and AVX-512 code; without nasm, it is ISA-L's portable C. Without the sources (an unusual
//! registry), or with `CENOTE_ISAL=off`, there is no igzip, and libdeflate does all compression. `CENOTE_ISAL=nasm` makes
//! the build fail in all cases but the first. Cargo does not notice that nasm was installed later: touch this file then.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Packages whose versions `cenote engines` shows.
const LIBRARIES: [&str; 4] = ["libdeflate-sys", "lz4-sys", "blake3", "sha2"];
/// The sources of ISA-L that deflating needs on any machine. The checksums of gzip files are among them in plain C; we
/// write none.
const SOURCES: [&str; 12] = [
    "igzip/igzip.c",
    "igzip/hufftables_c.c",
    "igzip/igzip_base.c",
    "igzip/igzip_icf_base.c",
    "igzip/igzip_icf_body.c",
    "igzip/adler32_base.c",
    "igzip/flatten_ll.c",
    "igzip/encode_df.c",
    "igzip/huff_codes.c",
    "crc/crc_base.c",
    "crc/crc64_base.c",
    "crc/crc_base_aliases.c",
];
/// Compiled in place of [`ASSEMBLY`] where there is no nasm.
const PORTABLE: [&str; 3] = ["igzip/igzip_base_aliases.c", "igzip/proc_heap_base.c", "igzip/igzip_inflate.c"];
const ASSEMBLY: [&str; 18] = [
    "igzip/igzip_body.asm",
    "igzip/igzip_finish.asm",
    "igzip/igzip_icf_body_h1_gr_bt.asm",
    "igzip/igzip_icf_finish.asm",
    "igzip/rfc1951_lookup.asm",
    "igzip/adler32_sse.asm",
    "igzip/adler32_avx2_4.asm",
    "igzip/igzip_multibinary.asm",
    "igzip/igzip_update_histogram_01.asm",
    "igzip/igzip_update_histogram_04.asm",
    "igzip/encode_df_04.asm",
    "igzip/encode_df_06.asm",
    "igzip/proc_heap.asm",
    "igzip/igzip_deflate_hash.asm",
    "igzip/igzip_gen_icf_map_lh1_06.asm",
    "igzip/igzip_gen_icf_map_lh1_04.asm",
    "igzip/igzip_set_long_icf_fg_04.asm",
    "igzip/igzip_set_long_icf_fg_06.asm",
];

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CENOTE_ISAL");
    println!("cargo::rustc-check-cfg=cfg(isal)");
    let lock = lock();
    for name in LIBRARIES {
        if let Ok(version) = lock.as_ref().map_err(ToString::to_string).and_then(|lock| locked(lock, name)) {
            println!("cargo::rustc-env=VERSION_{}={version}", name.to_uppercase().replace('-', "_"));
        }
    }
    let wish = env::var("CENOTE_ISAL").unwrap_or_default();
    if wish == "off" {
        return Ok(());
    }
    match lock.and_then(|lock| igzip(&lock)) {
        Ok(assembler) if wish == "nasm" && assembler.is_none() => {
            Err("CENOTE_ISAL=nasm, but nasm is not here (Debian: apt install nasm)".into())
        }
        Ok(_) => Ok(()),
        Err(error) if wish == "nasm" => Err(error),
        Err(error) => {
            println!("cargo::warning=gzip will be libdeflate's alone, without igzip: {error}");
            Ok(())
        }
    }
}

/// Compiles the library; returns the assembler's version, if there is one.
fn igzip(lock: &Table) -> Result<Option<String>> {
    let place = sources(lock)?;
    let version = version(&place)?;
    let objects =
        if env::var("TARGET")?.starts_with("x86_64-unknown-linux") { assemble(&place) } else { None };
    let mut build = cc::Build::new();
    build.opt_level(2).warnings(false).include(place.join("include")).include(place.join("igzip"));
    build.files(SOURCES.map(|name| place.join(name)));
    match &objects {
        Some((_, objects)) => build.define("AS_FEATURE_LEVEL", "10").objects(objects),
        None => build.files(PORTABLE.map(|name| place.join(name))),
    };
    build.try_compile("cenote_igzip")?;
    let assembler = objects.map(|(assembler, _)| assembler);
    let code = assembler.as_deref().unwrap_or("portable C");
    println!("cargo::rustc-cfg=isal");
    println!("cargo::rustc-env=ISAL_VERSION={version}");
    println!("cargo::rustc-env=ISAL_CODE={code}");
    Ok(assembler)
}

/// The `Cargo.lock` that this build uses: of the workspace, or beside the package.
fn lock() -> Result<Table> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let place = package.ancestors().map(|folder| folder.join("Cargo.lock")).find(|place| place.is_file());
    let place = place.ok_or("there is no Cargo.lock")?;
    println!("cargo::rerun-if-changed={}", place.display());
    Ok(fs::read_to_string(place)?.parse()?)
}

/// The version of the package that cargo chose.
fn locked<'a>(lock: &'a Table, name: &str) -> std::result::Result<&'a str, String> {
    let packages = lock.get("package").and_then(Value::as_array).into_iter().flatten();
    let mut named = packages.filter(|package| package.get("name").and_then(Value::as_str) == Some(name));
    let version = named.next().and_then(|package| package.get("version")).and_then(Value::as_str);
    version.ok_or_else(|| format!("Cargo.lock does not name {name}"))
}

/// The folder with ISA-L's sources, inside the package of `isal-sys`. It lies where cargo unpacks packages, or where cargo
/// says (vendored sources, for example). Cargo cannot always say: it would need every package of the lock file, including
/// those of other platforms, and a build fetches only those of its own.
fn sources(lock: &Table) -> Result<PathBuf> {
    let package = format!("isal-sys-{}", locked(lock, "isal-sys")?);
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok()).into_iter().flatten();
    let mut fetched = registries.flatten().map(|registry| registry.path().join(&package).join("isa-l"));
    match fetched.find(|place| place.is_dir()) {
        Some(place) => Ok(place),
        None => told(),
    }
}

/// The same by cargo's own word.
fn told() -> Result<PathBuf> {
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let asked = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--frozen", "--manifest-path"])
        .arg(manifest)
        .output()?;
    if !asked.status.success() {
        return Err("cargo does not tell where the sources of isal-sys are".into());
    }
    let answer: serde_json::Value = serde_json::from_slice(&asked.stdout)?;
    let mut packages = answer["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == "isal-sys");
    let manifest =
        package.and_then(|package| package["manifest_path"].as_str()).ok_or("isal-sys is not here")?;
    Ok(Path::new(manifest).with_file_name("isa-l"))
}

/// Such as `2.31.0`.
fn version(place: &Path) -> Result<String> {
    let text = fs::read_to_string(place.join("configure.ac"))?;
    let after = text.split_once("[libisal],").ok_or("ISA-L says no version")?.1;
    let version = after.trim_start().trim_start_matches('[').split(']').next().unwrap_or_default();
    Ok(version.to_owned())
}

/// The objects of the assembly and the assembler's version; `None` if there is none that knows AVX-512.
fn assemble(place: &Path) -> Option<(String, Vec<PathBuf>)> {
    let version = Command::new("nasm").arg("-v").output().ok().filter(|output| output.status.success())?;
    let version = String::from_utf8(version.stdout).ok()?;
    let version = version.split_whitespace().nth(2)?;
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let mut objects = Vec::new();
    for name in ASSEMBLY {
        let source = place.join(name);
        let object = out.join(source.file_stem()?).with_extension("asm.o");
        let includes = ["include", "igzip"].map(|folder| format!("-I{}/", place.join(folder).display()));
        let done = Command::new("nasm")
            .args(["-f", "elf64", "-D", "LINUX", "-D", "HAVE_AS_KNOWS_AVX512", "-D", "AS_FEATURE_LEVEL=10"])
            .args(includes)
            .arg("-o")
            .args([&object, &source])
            .output()
            .ok()?;
        if !done.status.success() {
            println!("cargo::warning=nasm {version} does not take {name}: igzip will be portable C");
            return None;
        }
        objects.push(object);
    }
    Some((format!("nasm {version}"), objects))
}
