import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installLocked } from '../locked-packages.ts';

/** A version of LangGraph with a lock file below `test/agents/libraries`. */
export type Library = 'oldest' | 'newest';

const agentsFolder = fileURLToPath(new URL('.', import.meta.url));

/**
 * Returns a folder with a copy of `test/agents/projects` whose graphs resolve the packages of the lock file of the library,
 * such as LangGraph and LangChain, or the bundler of UIs, and other packages from the repository.
 */
export async function copyProjectsWithLibrary(library: Library | 'ui'): Promise<string> {
  const folder = await installLocked(join(agentsFolder, 'libraries', library), `langgraph-${library}`);
  const projects = mkdtempSync(join(folder, 'projects-'));
  cpSync(join(agentsFolder, 'projects'), projects, { recursive: true });
  process.once('exit', () => rmSync(projects, { recursive: true, force: true }));
  return `${projects}/`;
}
