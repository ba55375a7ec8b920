//! Damaged pools in which directories are their own ancestors: every function ends with an error instead of looping.

use std::sync::Arc;

use dmu::zap;
use dsl::space::{Category, add_space};
use dsl::{Sizes, list, tree};
use format::ObjectId;
use format::zap::Value as Stored;
use storage::host::ScriptedDisk;

use crate::testing::made;
use crate::{Error, NewFilesystem, Options, Pool, props};

/// A pool in which the grandparent of `tank/a/b` is `tank/a/b` itself; `twice`: by two names.
fn tangled(disk: &ScriptedDisk, twice: bool) -> Pool {
    let pool = made(std::slice::from_ref(disk));
    let host = Options::default().host;
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        let new = NewFilesystem::plain(&host);
        pool.create_filesystem(name, Vec::new(), new, Arc::new(|_, _, _| Ok(()))).unwrap();
    }
    let done: crate::Result<()> = pool.run(move |syncing| {
        let mos = &syncing.inner.mos;
        let [a, b] = ["tank/a", "tank/a/b"].map(|name| tree::dir_of(mos, "tank", name).unwrap());
        let mut dir = mos.dir(a)?;
        dir.parent = b;
        mos.put_dir(&syncing.tx, a, &dir)?;
        let names = mos.object(mos.dir(b)?.child_dir_zap)?;
        let leaves: &[&str] = if twice { &["a", "again"] } else { &["a"] };
        for leaf in leaves {
            zap::insert(&names, &syncing.tx, leaf.as_bytes(), &Stored::from_u64(a.0))?;
        }
        Ok(())
    });
    done.unwrap();
    pool
}

fn expect_damage<T>(what: &str, done: crate::Result<T>) {
    let error = done.err().unwrap_or_else(|| panic!("{what} is no error")).to_string();
    assert!(error.contains("dataset nesting"), "{what}: {error}");
}

#[test]
fn functions_on_directories_that_are_their_own_ancestors_end() {
    for twice in [false, true] {
        let disk = ScriptedDisk::new(64 << 20);
        let pool = tangled(&disk, twice);
        expect_damage("list", pool.list("tank", None, true));
        expect_damage("unfinished", list::unfinished(&pool.inner.view()));
        assert_eq!(pool.list("tank", Some(1), true).unwrap().len(), 3, "what lies above is sound");
        let info = pool.dataset("tank/a/b").unwrap();
        for name in ["available", "compression", "mountpoint"] {
            let property = props::dataset::parse(name).unwrap();
            expect_damage(name, pool.property(&info, property));
        }
        expect_damage("user properties", pool.user_properties(&info));
        expect_damage("open", pool.open("tank/a/b"));
        expect_damage("rename", pool.rename_dataset("tank/c", "tank/a/b/c"));
        let host = Options::default().host;
        let new = NewFilesystem::plain(&host);
        let made = pool.create_filesystem("tank/a/b/new", Vec::new(), new, Arc::new(|_, _, _| Ok(())));
        assert!(made.is_err());
        // The failed change stopped the pool. A new import finds the state before it.
        drop(pool);
        let again = Pool::import_disks(vec![Arc::new(disk.clone())], Options::default());
        expect_damage("import", again);
    }
}

#[test]
fn accounting_of_circular_directories_ends() {
    let disk = ScriptedDisk::new(64 << 20);
    let pool = tangled(&disk, false);
    let charged: crate::Result<()> = pool.run(|syncing| {
        let mos = &syncing.inner.mos;
        let b: ObjectId = tree::dir_of(mos, "tank", "tank/a/b")?;
        let sizes = Sizes { used: 512, comp: 512, uncomp: 512 };
        let before = mos.dir(b)?;
        let done = add_space(mos, &syncing.tx, b, Category::Head, sizes);
        expect_damage("charge", done);
        assert_eq!(mos.dir(b)?, before, "nothing is charged in part");
        Err(Error::Unsupported("good".into()))
    });
    let said = charged.unwrap_err().to_string();
    assert!(said.contains("good"), "{said}");
}
