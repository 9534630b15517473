import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { readFileIfExists, writePrivateFile } from '../../infra/embedded/private-file.ts';
import { isSameProcess } from '../../infra/embedded/process-identity.ts';
import { stackFiles } from './stack-folder.ts';
import { type StackPartName, stackParts } from './stack-settings.ts';

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

/** State of a part of a stack: its addresses and passwords, or the reason why the part does not run. */
export type PartState = Static<typeof PartState>;
export type StackState = Static<typeof StackState>;

/** Reads the state of the stack in `folder`, if its supervisor is still running. */
export function readStackState(folder: string): StackState | undefined {
  try {
    const state: unknown = JSON.parse(readFileIfExists(stackFiles(folder).state) ?? 'null');
    if (Value.Check(StackState, state) && isSameProcess(state.pid, state.process)) return state;
  } catch {
    // Not a valid state file.
  }
  return undefined;
}

/** Writes the state, which contains passwords (mode 0600), and a file of variables for the shell command `source`. */
export function writeStackState(folder: string, state: StackState): void {
  const files = stackFiles(folder);
  writePrivateFile(files.exports, formatExportLines(state));
  writePrivateFile(files.state, `${JSON.stringify(state, null, 2)}\n`);
}

/** Formats shell lines with the settings that make `runlake` use the parts that are running. */
export function formatExportLines(state: StackState): string {
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
