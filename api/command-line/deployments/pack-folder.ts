import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { parseEnv } from 'node:util';
import ignore, { type Ignore } from 'ignore';
import { create } from 'tar';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { formatBytes } from '../format-figures.ts';
import { toPrintable } from '../print-table.ts';

/** The source of a deployment on this machine. */
export interface SourceFolder {
  readonly folder: string;
  /** Path of the langgraph.json within the folder. */
  readonly configPath: string;
  /** Files that are uploaded, with their sizes; paths within the folder, with `/`. */
  readonly files: readonly { readonly path: string; readonly bytes: number }[];
  /** Variables of the file that `env` of the langgraph.json names. Undefined if there is none. */
  readonly variables: Readonly<Record<string, string>> | undefined;
}

/** Folders that are never uploaded. They contain packages, which the host installs, or no source. */
const excluded = [
  '.git/',
  'node_modules/',
  '.venv/',
  'venv/',
  '__pycache__/',
  '.tox/',
  '.mypy_cache/',
  '.langgraph_api/',
];
const ignoreFiles = ['.dockerignore', '.gitignore'];
const configName = 'langgraph.json';
/** Maximum number of files. It prevents that a large folder is packed by mistake. */
const maxFiles = 50_000;

/**
 * Reads a folder with a langgraph.json, or the folder of a langgraph.json. Files are selected as `langgraph deploy` does:
 * without those that `.dockerignore` and `.gitignore` in the folder exclude, without links, packages and the history of
 * git. The environment file is not uploaded: its variables become secrets.
 *
 * @throws BAD_REQUEST
 */
export async function readSourceFolder(path: string): Promise<SourceFolder> {
  const target = resolve(path);
  const isFolder = await stat(target).then(
    (found) => found.isDirectory(),
    () => {
      throw createError(`There is no folder ${path}.`);
    },
  );
  const folder = isFolder ? target : dirname(target);
  const configPath = isFolder ? configName : basename(target);
  const variables = await readVariables(folder, configPath);
  const rules = ignore().add(excluded);
  for (const name of ignoreFiles) rules.add(await readFile(join(folder, name), 'utf8').catch(() => ''));
  if (variables) rules.add(`/${variables.path}`);
  const files = await listFiles(folder, rules);
  if (!files.some((file) => file.path === configPath))
    throw createError(`${configPath} is excluded by ${ignoreFiles.join(' or ')}.`);
  return { folder, configPath, files, variables: variables?.values };
}

/** Reads the environment file that a langgraph.json names. */
async function readVariables(
  folder: string,
  configPath: string,
): Promise<{ readonly path: string; readonly values: Record<string, string> } | undefined> {
  const text = await readFile(join(folder, configPath), 'utf8').catch(() => {
    throw createError(`There is no ${configPath} in ${folder}.`);
  });
  let env: unknown;
  try {
    ({ env } = JSON.parse(text) as { readonly env?: unknown });
  } catch (error) {
    throw createError(`${configPath} is not valid JSON: ${(error as Error).message}.`);
  }
  if (typeof env !== 'string') return undefined;
  const file = resolve(folder, env);
  const values = await readFile(file, 'utf8').catch(() => undefined);
  if (values === undefined) return undefined;
  return { path: toSlashes(relative(folder, file)), values: { ...parseEnv(values) } as Record<string, string> };
}

async function listFiles(root: string, rules: Ignore): Promise<SourceFolder['files']> {
  const files: { path: string; bytes: number }[] = [];
  const visit = async (folder: string): Promise<void> => {
    const entries = await readdir(folder, { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(folder, entry.name);
      const name = toSlashes(relative(root, path));
      if (rules.ignores(entry.isDirectory() ? `${name}/` : name)) continue;
      if (entry.isDirectory()) await visit(path);
      else if (entry.isFile()) files.push({ path: name, bytes: (await lstat(path)).size });
      if (files.length > maxFiles) throw createError(`The folder has more than ${maxFiles} files. ${hint}`);
    }
  };
  await visit(root);
  return files;
}

/**
 * Packs the files into a tarball at `tarball`. @returns its size in bytes.
 *
 * @throws BAD_REQUEST if it is larger than `maxBytes`.
 */
export async function packFolder({ folder, files }: SourceFolder, tarball: string, maxBytes: number): Promise<number> {
  // Without the prefix, a path with `@` at its start would be read as another archive.
  const paths = files.map(({ path }) => `./${path}`);
  await create({ file: tarball, cwd: folder, gzip: true, portable: true, noDirRecurse: true }, paths);
  const { size } = await stat(tarball);
  if (size <= maxBytes) return size;
  const largest = [...files].sort((a, b) => b.bytes - a.bytes).slice(0, 3);
  const names = largest.map(({ path, bytes }) => `${path} (${formatBytes(bytes)})`).join(', ');
  throw createError(
    `The packed source has ${formatBytes(size)}; at most ${formatBytes(maxBytes)} are allowed. Largest files: ${names}. ${hint}`,
  );
}

const hint = `Exclude files that the build does not need in ${ignoreFiles.join(' or ')}.`;
const toSlashes = (path: string) => path.split(sep).join('/');
const createError = (reason: string) => runlakeError('BAD_REQUEST', { reason: toPrintable(reason) });
