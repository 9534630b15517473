import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { type StackPartName, stackParts } from '../config/stack-settings.ts';
import { readFileIfThere, writePrivateFile } from '../embedded/private-file.ts';
import { isSameProcess } from '../embedded/process-identity.ts';
import { stackFiles } from './stack-folder.ts';

const Texts = Type.Record(Type.String(), Type.String());

const PartState = Type.Union([
  Type.Object({ status: Type.Literal('up'), title: Type.String(), values: Texts, exports: Texts }),
  Type.Object({ status: Type.Literal('skipped'), title: Type.String(), reason: Type.String() }),
  Type.Object({ status: Type.Literal('ended'), title: Type.String(), reason: Type.String() }),
]);

const StackState = Type.Object({
  pid: Type.Integer(),
  process: Type.String(),
  parts: Type.Record(Type.String(), PartState),
});

/** A part of a running stack: its addresses and passwords, or why it is not there. */
export type PartState = Static<typeof PartState>;
export type StackState = Static<typeof StackState>;

/** What the supervisor of the stack in `folder` wrote, if it still runs. */
export function readStackState(folder: string): StackState | undefined {
  try {
    const state: unknown = JSON.parse(readFileIfThere(stackFiles(folder).state) ?? 'null');
    if (Value.Check(StackState, state) && isSameProcess(state.pid, state.process)) return state;
  } catch {
    // Not one of ours.
  }
  return undefined;
}

/** Writes the state, with passwords (0600), and beside it a file of variables for `source`. */
export function writeStackState(folder: string, state: StackState): void {
  const files = stackFiles(folder);
  writePrivateFile(files.exports, exportLines(state));
  writePrivateFile(files.state, `${JSON.stringify(state, null, 2)}\n`);
}

/** Lines of a shell that point `runlake` at the parts that are up. */
export function exportLines(state: StackState): string {
  return inOrder(state)
    .flatMap(([, part]) => (part.status === 'up' ? Object.entries(part.exports) : []))
    .map(([variable, value]) => `export ${variable}='${value}'\n`)
    .join('');
}

export function inOrder(state: StackState): [StackPartName, PartState][] {
  return stackParts.flatMap((name) => {
    const part = state.parts[name];
    return part ? [[name, part] as [StackPartName, PartState]] : [];
  });
}
