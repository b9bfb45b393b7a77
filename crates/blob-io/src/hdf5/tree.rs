//! Walks the groups of a file and lists every name of every dataset.
//!
//! Each object is read once, under any number of links. A further name of an object takes the memory of an entry.
//! Groups may contain themselves, and links may lead nowhere or to other files, which are never opened.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::attributes::{self, LONGEST_LISTED, MAX_LISTED};
use super::dataset;
use super::header::{Header, ObjectKind};
use super::links::{self, Link, Target};
use super::structure::{Structure, fault_of};
use crate::entry::{Entry, Kind};
use crate::error::{ReadError, check_limit};
use crate::limits::{Limit, names_for};
use crate::names::{NameTable, faulty, name_from_bytes};
use crate::words::Listed;
use crate::work;

/// Limits on the groups and datasets of one file.
const MAX_OBJECTS: u64 = 1 << 16;
const MAX_NESTED: usize = 64;
/// How many soft links one path may lead through, as in HDF5 (`H5L_NUM_LINKS`).
const MAX_SOFT: u32 = 16;

/// A dataset under one name; a dataset with two names is found twice.
pub(super) struct NamedDataset {
    /// The path of the dataset's group, with `/` before each name; empty for the root.
    pub(super) group: Rc<str>,
    pub(super) name: String,
    /// The offset of the dataset's header.
    pub(super) at: u64,
    pub(super) entry: Entry,
}

/// The paths of the groups, and the datasets.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) groups: Vec<Rc<str>>,
    pub(super) datasets: Vec<NamedDataset>,
}

/// An object, read once.
#[derive(Clone)]
enum Object {
    Group(Rc<[Link]>),
    Dataset(Rc<(u64, Entry)>),
    Other,
}

/// A group on the way from the root; `outer` leads to the groups around.
struct Place {
    address: u64,
    path: Rc<str>,
    depth: usize,
    outer: Option<Rc<Self>>,
}

impl Place {
    /// Whether the group at `address` is this group or one around this group.
    fn lies_within(&self, address: u64) -> bool {
        let mut place = Some(self);
        while let Some(here) = place {
            work::visit(0, 1);
            if here.address == address {
                return true;
            }
            place = here.outer.as_deref();
        }
        false
    }
}

/// The walk over a file.
struct Walk<'s> {
    structure: &'s Structure,
    table: &'s mut NameTable,
    objects: HashMap<u64, Object>,
    root: u64,
    tree: Tree,
    /// The addresses of the groups that were listed under a hard link, and of the root.
    listed: HashSet<u64>,
    /// The groups and datasets that were listed under further names.
    aliases: u64,
    names: u64,
    /// How many links of paths may still be followed.
    steps: u64,
    nowhere: Listed<String, MAX_LISTED>,
    elsewhere: Listed<String, MAX_LISTED>,
    /// The objects with attributes whose names are not known yet, and the names of the others.
    attributed: HashSet<u64>,
    attributes: Listed<String, MAX_LISTED>,
}

/// Lists all groups and datasets.
pub(super) fn walk(structure: &Structure, table: &mut NameTable) -> Result<Tree, ReadError> {
    let root = structure.root()?;
    let steps = structure.file_len().saturating_mul(16).saturating_add(1 << 16);
    let mut walk = Walk {
        structure,
        table,
        objects: HashMap::new(),
        root,
        tree: Tree::default(),
        listed: HashSet::from([root]),
        aliases: 0,
        names: 0,
        steps,
        nowhere: Listed::default(),
        elsewhere: Listed::default(),
        attributed: HashSet::new(),
        attributes: Listed::default(),
    };
    let mut todo = vec![Rc::new(Place { address: root, path: "".into(), depth: 0, outer: None })];
    while let Some(place) = todo.pop() {
        let inner = walk.group(&place)?;
        todo.extend(inner.into_iter().rev());
    }
    let Walk { tree, table, nowhere, elsewhere, attributes, .. } = walk;
    table.warn_of_names("attributes of groups and datasets are left out, of", &attributes);
    table.warn_of_names("links that lead to nothing are left out", &nowhere);
    table.warn_of_names("links to other files are left out", &elsewhere);
    Ok(tree)
}

/// A link's path, as a warning names it.
fn left_out(place: &Place, link: &Link) -> String {
    let path = format!("{}/{}", place.path, name_from_bytes(&link.name));
    path[1..].chars().take(LONGEST_LISTED).collect()
}

impl Walk<'_> {
    /// Lists the datasets of a group; returns the inner groups.
    fn group(&mut self, place: &Rc<Place>) -> Result<Vec<Rc<Place>>, ReadError> {
        let Object::Group(links) = self.object(place.address)? else {
            return Ok(Vec::new());
        };
        let at = self.structure.begin().saturating_add(place.address);
        let mut inner = Vec::new();
        self.tree.groups.push(place.path.clone());
        for link in links.iter() {
            work::visit(link.name.len() as u64, 1);
            let (address, is_hard) = match &link.to {
                Target::Object(address) => (Some(*address), true),
                Target::Path(path) => (self.resolve(path, place.address, 0)?, false),
                Target::Elsewhere => {
                    self.elsewhere.push(|| left_out(place, link));
                    continue;
                }
            };
            let Some(address) = address else {
                self.nowhere.push(|| left_out(place, link));
                continue;
            };
            let object = self.object(address)?;
            // The root's own attributes are read as metadata.
            if self.attributed.remove(&address) && address != self.root {
                self.attributes.push(|| left_out(place, link));
            }
            match object {
                Object::Other => {}
                Object::Dataset(dataset) => {
                    self.count(at, &link.name, place)?;
                    let (at, entry) = (*dataset).clone();
                    let name = name_from_bytes(&link.name).into_owned();
                    self.tree.datasets.push(NamedDataset { group: place.path.clone(), name, at, entry });
                }
                Object::Group(_) => {
                    if place.lies_within(address) || !self.may_list(address, is_hard) {
                        continue;
                    }
                    self.count(at, &link.name, place)?;
                    let depth = place.depth + 1;
                    check_limit(at, Limit::Fixed, "the depth of groups", depth as u64, MAX_NESTED as u64)?;
                    let path = format!("{}/{}", place.path, name_from_bytes(&link.name)).into();
                    inner.push(Rc::new(Place { address, path, depth, outer: Some(place.clone()) }));
                }
            }
        }
        Ok(inner)
    }

    /// Whether a group is listed here: always under the first hard link, under further links up to a limit.
    fn may_list(&mut self, address: u64, is_hard: bool) -> bool {
        if is_hard && self.listed.insert(address) {
            return true;
        }
        let size = match self.objects.get(&address) {
            Some(Object::Group(links)) => links.len() as u64 + 1,
            _ => 1,
        };
        self.aliases = self.aliases.saturating_add(size);
        let fits = self.aliases <= MAX_OBJECTS / 2;
        if !fits {
            self.table.warn_of_loss(
                None,
                "too many links lead to the same groups; not all names of their datasets are listed",
            );
        }
        fits
    }

    /// Counts one more name against the limits.
    fn count(&mut self, at: u64, name: &[u8], place: &Place) -> Result<(), ReadError> {
        let count = (self.tree.groups.len() + self.tree.datasets.len()) as u64 + 1;
        check_limit(at, Limit::Fixed, "the number of groups and datasets", count, MAX_OBJECTS)?;
        self.names += (place.path.len() + 2 * name.len()) as u64;
        let most = names_for(count);
        Ok(check_limit(at, Limit::Fixed, "the bytes of all names", self.names, most)?)
    }

    /// The object at an address; a dataset's fault goes into the dataset's entry.
    fn object(&mut self, address: u64) -> Result<Object, ReadError> {
        if let Some(object) = self.objects.get(&address) {
            return Ok(object.clone());
        }
        let object = self.read(address)?;
        self.objects.insert(address, object.clone());
        Ok(object)
    }

    fn read(&mut self, address: u64) -> Result<Object, ReadError> {
        let header = Header::read(self.structure, address)?;
        if attributes::has_any(&header) {
            self.attributed.insert(address);
        }
        Ok(match header.kind() {
            ObjectKind::Other => Object::Other,
            ObjectKind::Group => Object::Group(links::of_group(self.structure, &header)?.into()),
            ObjectKind::Dataset => {
                let mut entry = Entry::new(0, 0, Kind::Data);
                if let Err(stop) = dataset::describe(self.structure, &header, self.table.limits(), &mut entry) {
                    entry = faulty(0, 0, Kind::Data, fault_of(stop)?);
                }
                Object::Dataset(Rc::new((header.at, entry)))
            }
        })
    }

    /// The address that a path leads to from a group; `None` for a path that leads nowhere, to another file, or in a
    /// circle.
    fn resolve(&mut self, path: &[u8], from: u64, depth: u32) -> Result<Option<u64>, ReadError> {
        let mut address = if path.starts_with(b"/") { self.root } else { from };
        for part in path.split(|byte| *byte == b'/') {
            work::visit(part.len() as u64, 1);
            if part.is_empty() || part == b"." {
                continue;
            }
            let Some(steps) = self.steps.checked_sub(1).filter(|_| depth < MAX_SOFT) else {
                return Ok(None);
            };
            self.steps = steps;
            let Object::Group(links) = self.object(address)? else {
                return Ok(None);
            };
            let Ok(found) = links.binary_search_by(|link| (*link.name).cmp(part)) else {
                return Ok(None);
            };
            let next = match &links[found].to {
                Target::Object(address) => Some(*address),
                Target::Path(path) => self.resolve(path, address, depth + 1)?,
                Target::Elsewhere => None,
            };
            match next {
                Some(next) => address = next,
                None => return Ok(None),
            }
        }
        Ok(Some(address))
    }
}
