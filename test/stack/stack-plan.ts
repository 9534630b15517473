import type { Installation } from './part.ts';
import type { StackPartName, StackSettings } from './stack-settings.ts';
import type { PartState } from './stack-state.ts';

/** Message to the supervisor of a stack. */
export interface StackPlan {
  readonly folder: string;
  readonly ports: StackSettings['ports'];
  readonly parts: readonly { readonly name: StackPartName; readonly installation: Installation }[];
  readonly skipped: Readonly<Record<string, PartState>>;
}

/**
 * Messages of the supervisor: first one for each part that has started, then that all parts are running, or the errors.
 */
export type StackAnswer = { readonly started: string } | { readonly up: true } | { readonly failed: readonly string[] };
