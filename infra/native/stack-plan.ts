import type { StackPartName, StackSettings } from '../config/stack-settings.ts';
import type { Installation } from './part.ts';
import type { PartState } from './stack-state.ts';

/** What the supervisor of a stack is told. */
export interface StackPlan {
  readonly folder: string;
  readonly ports: StackSettings['ports'];
  readonly parts: readonly { readonly name: StackPartName; readonly installation: Installation }[];
  readonly skipped: Readonly<Record<string, PartState>>;
}

/** What it answers: each part that came up, then that all are up, or why not. */
export type StackAnswer = { readonly started: string } | { readonly up: true } | { readonly failed: readonly string[] };
