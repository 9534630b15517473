import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import type { WorkerSetup } from './messages.ts';

/** Whether any module of the langgraph.json is a TypeScript file. */
export function needsTypescript({ graphs, auth, app }: WorkerSetup): boolean {
  return [...graphs, auth, app].some((module) => module && /\.[cm]?tsx?$/.test(module.path));
}

/** URL of the module loader that enables a process to import TypeScript. */
export const getTypescriptLoaderUrl = () => pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

/** Installs the TypeScript loader. All later imports of this process use it. */
export async function installTypescriptLoader(): Promise<void> {
  await import(getTypescriptLoaderUrl());
}
