import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import type { WorkerSetup } from './worker-messages.ts';

/** Whether a module that the langgraph.json names is TypeScript. */
export function needsTypescript({ graphs, auth, app }: WorkerSetup): boolean {
  return [...graphs, auth, app].some((module) => module && /\.[cm]?tsx?$/.test(module.path));
}

/** What makes a process import TypeScript, as a URL. */
export const typescriptLoader = () => pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

/** From here on this process imports TypeScript: whatever it imports goes through a loader. */
export async function readTypescript(): Promise<void> {
  await import(typescriptLoader());
}
