// SPDX-License-Identifier: BSD-3-Clause
//! Finds libxport_services and libxport: in the folder LIBXPORT_DIR if set, else by pkg-config.
use std::env;
use std::process::Command;

fn main() {
    for name in ["LIBXPORT_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    if let Ok(dir) = env::var("LIBXPORT_DIR") {
        println!("cargo:rustc-link-search=native={}", dir);
        println!("cargo:rustc-link-lib=xport_services");
        println!("cargo:rustc-link-lib=xport");
        return;
    }
    let out = Command::new("pkg-config").args(["--libs", "libxport_services"]).output().expect("cannot run pkg-config");
    if !out.status.success() {
        panic!("pkg-config does not find libxport_services: {}", String::from_utf8_lossy(&out.stderr));
    }
    for word in String::from_utf8_lossy(&out.stdout).split_whitespace() {
        if let Some(dir) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", dir);
        } else if let Some(name) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={}", name);
        }
    }
}
