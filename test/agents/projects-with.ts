import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** A version of LangGraph with a lock file below `test/agents/libraries`. */
export type Library = 'oldest' | 'newest';

const here = fileURLToPath(new URL('.', import.meta.url));
const packages = fileURLToPath(new URL('../../node_modules', import.meta.url));

/**
 * Returns a folder with a copy of `test/agents/projects` whose graphs resolve LangGraph and LangChain from the lock file
 * of the library, and other packages from the repository. Installs the library once for each state of its lock file.
 */
export async function projectsWith(library: Library): Promise<string> {
  const folder = await install(library);
  const projects = mkdtempSync(join(folder, 'projects-'));
  cpSync(join(here, 'projects'), projects, { recursive: true });
  process.once('exit', () => rmSync(projects, { recursive: true, force: true }));
  return `${projects}/`;
}

/** Installs into a folder of its own and then renames it, so that suites can call this at the same time. */
async function install(library: Library): Promise<string> {
  const source = join(here, 'libraries', library);
  const lock = readFileSync(join(source, 'package-lock.json'));
  const hash = createHash('sha256').update(lock).update(packages).digest('hex').slice(0, 16);
  const root = join(tmpdir(), `runlake-langgraph-${library}-${hash}`);
  const folder = join(root, 'library');
  if (existsSync(folder)) return folder;
  const fresh = mkdtempSync(`${root}-`);
  mkdirSync(join(fresh, 'library'));
  symlinkSync(packages, join(fresh, 'node_modules'));
  for (const name of ['package.json', 'package-lock.json', '.npmrc'])
    cpSync(join(source, name), join(fresh, 'library', name));
  const words = ['ci', '--no-audit', '--no-fund', '--ignore-scripts', '--prefer-offline', '--loglevel=error'];
  await promisify(execFile)('npm', words, { cwd: join(fresh, 'library') });
  try {
    renameSync(fresh, root);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
