// SPDX-License-Identifier: BSD-3-Clause
//! Finds libxport: in the folder LIBXPORT_DIR if set (LIBXPORT_NAME: another name), else by pkg-config.
use std::env;
use std::process::Command;

fn main() {
    for name in ["LIBXPORT_DIR", "LIBXPORT_NAME", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    if let Ok(dir) = env::var("LIBXPORT_DIR") {
        let name = env::var("LIBXPORT_NAME").unwrap_or_else(|_| "xport".into());
        println!("cargo:rustc-link-search=native={}", dir);
        println!("cargo:rustc-link-lib={}", name);
        return;
    }
    let out = Command::new("pkg-config").args(["--libs", "libxport"]).output().expect("cannot run pkg-config");
    if !out.status.success() {
        panic!("pkg-config does not find libxport: {}", String::from_utf8_lossy(&out.stderr));
    }
    for word in String::from_utf8_lossy(&out.stdout).split_whitespace() {
        if let Some(dir) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", dir);
        } else if let Some(name) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={}", name);
        }
    }
}
