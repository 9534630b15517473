import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { skipWithout } from '../../house/prerequisites.ts';

const root = fileURLToPath(new URL('../../../.python', import.meta.url));

/** The requirements of each environment, the folder, and what it is for. */
const environments = {
  sdk: ['requirements.txt', root, 'run the stock Python SDK'],
  parquet: ['parquet.txt', `${root}-parquet`, 'read Parquet with pandas'],
  mcp: ['mcp.txt', `${root}-mcp`, "run LangChain's MCP adapters"],
} as const;

/**
 * Returns the Python of a virtual environment with pinned packages, which is created at the first call and then reused.
 *
 * @returns the interpreter, or why it is missing, which is printed: the caller skips.
 * @throws in CI if it is missing.
 */
export function pythonEnvironment(
  packages: keyof typeof environments = 'sdk',
): { python: string } | { missing: string } {
  const [file, folder, purpose] = environments[packages];
  const environment = makeEnvironment(file, folder, purpose);
  if ('missing' in environment) skipWithout(environment.missing);
  return environment;
}

function makeEnvironment(file: string, folder: string, purpose: string): { python: string } | { missing: string } {
  const requirements = fileURLToPath(new URL(file, import.meta.url));
  const root = join(folder, createHash('sha256').update(readFileSync(requirements)).digest('hex').slice(0, 16));
  if (existsSync(root)) return { python: `${root}/bin/python` };
  const draft = `${root}-${process.pid}`;
  try {
    const run = (command: string, args: string[]) =>
      execFileSync(command, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: 240_000 });
    mkdirSync(folder, { recursive: true });
    run('python3', ['-m', 'venv', draft]);
    // Modules are compiled on import; most are never imported.
    const options = ['--quiet', '--disable-pip-version-check', '--no-compile'];
    run(`${draft}/bin/python`, ['-m', 'pip', 'install', ...options, '-r', requirements]);
    try {
      renameSync(draft, root);
    } catch (error) {
      // Another suite may have finished the same environment in the meantime, and use it.
      if (!existsSync(root)) throw error;
      rmSync(draft, { recursive: true, force: true });
    }
    return { python: `${root}/bin/python` };
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    const lastLine = String((error as { stderr?: Buffer }).stderr ?? error)
      .trim()
      .split('\n')
      .at(-1);
    return { missing: `Python 3 with pip and venv is needed to ${purpose}: ${lastLine}` };
  }
}
