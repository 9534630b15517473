import { fork } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Installation } from './part.ts';
import { allParts } from './parts/all-parts.ts';
import { makeStackFolder, stackFiles } from './stack-folder.ts';
import type { StackAnswer, StackPlan } from './stack-plan.ts';
import type { StackPartName, StackSettings } from './stack-settings.ts';
import { type PartState, readStackState, type StackState } from './stack-state.ts';
import { openTools } from './tools.ts';

/**
 * Starts a stack with a supervisor process that keeps it running. A part whose tool is missing is skipped, except in
 * CI.
 *
 * @param say called with progress messages.
 * @throws STACK_TOOL_MISSING in CI; STACK_CHECKSUM_MISMATCH, STACK_DOWNLOAD_FAILED; STACK_START_FAILED. After an error
 *   no process of the stack runs.
 */
export async function bringUp(settings: StackSettings, say: (line: string) => void): Promise<StackState> {
  const { folder, ports } = settings;
  const { parts, skipped } = await install(settings, say);
  makeStackFolder(folder);
  const failures = await startSupervisor({ folder, ports, parts, skipped }, say);
  const state = readStackState(folder);
  if (failures.length > 0 || !state) {
    const reasons = failures.length > 0 ? failures : ['the supervisor exited; see its log'];
    throw runlakeError('STACK_START_FAILED', { reasons: reasons.join('\n'), log: stackFiles(folder).log });
  }
  return state;
}

async function install(
  settings: StackSettings,
  say: (line: string) => void,
): Promise<Pick<StackPlan, 'parts' | 'skipped'>> {
  const tools = openTools(settings, say);
  const skipped: Record<string, PartState> = {};
  const installed = async (name: StackPartName): Promise<{ name: StackPartName; installation: Installation }[]> => {
    const { title } = allParts[name];
    try {
      const installation = await allParts[name].install(tools);
      return [{ name, installation }];
    } catch (error) {
      const isMissing = isRunlakeError(error) && ['STACK_TOOL_MISSING', 'ENGINE_PACKAGE_MISSING'].includes(error.code);
      if (!isMissing || settings.isCi) throw error;
      const reason = `${error.message} ${error.remedy}`;
      say(`${title} is skipped: ${reason}`);
      skipped[name] = { status: 'skipped', title, reason };
      return [];
    }
  };
  const parts = [];
  // Sequential, because Maven's cache does not support concurrent processes.
  for (const name of settings.parts) parts.push(...(await installed(name)));
  return { parts, skipped };
}

/**
 * Starts the supervisor.
 *
 * @returns the errors; empty if the stack has started.
 */
async function startSupervisor(plan: StackPlan, say: (line: string) => void): Promise<readonly string[]> {
  const program = fileURLToPath(new URL('./stack-child.ts', import.meta.url));
  const log = openSync(stackFiles(plan.folder).log, 'w', 0o600);
  try {
    const child = fork(program, [plan.folder], {
      cwd: plan.folder,
      execArgv: ['--import', pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href],
      env: { LC_ALL: 'C.UTF-8', TZ: 'UTC', PATH: '/usr/bin:/bin' },
      detached: true,
      stdio: ['ignore', log, log, 'ipc'],
    });
    const failures = new Promise<readonly string[]>((resolve) => {
      child.on('message', (answer: StackAnswer) => {
        if ('started' in answer) say(`${answer.started} is up`);
        else resolve('failed' in answer ? answer.failed : []);
      });
      child.once('exit', (code, signal) => resolve([`the supervisor ended with ${signal ?? code}`]));
      child.once('error', (error) => resolve([error.message]));
    });
    child.send(plan);
    const found = await failures;
    // After a failure the supervisor stops all parts and exits.
    if (found.length > 0 && child.exitCode === null && child.connected) {
      await new Promise((resolve) => child.once('exit', resolve));
    }
    if (child.connected) child.disconnect();
    child.unref();
    return found;
  } finally {
    closeSync(log);
  }
}
