import { readText } from './compose-file.ts';

export interface Instruction {
  readonly name: string;
  readonly value: string;
}

export interface Stage {
  readonly name: string | undefined;
  readonly image: string;
  readonly instructions: readonly Instruction[];
}

/** Returns the stages of a Dockerfile; arguments are replaced by their defaults. */
export function readStages(path: string): readonly Stage[] {
  const lines = readText(path)
    .replace(/^\s*#.*\n/gm, '')
    .replace(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line.trim() !== '');
  const defaults = new Map<string, string>();
  const stages: { name: string | undefined; image: string; instructions: Instruction[] }[] = [];
  for (const line of lines) {
    const [, name = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
    const value = rest.replace(/\$\{(\w+)\}/g, (whole, argument) => defaults.get(argument) ?? whole);
    if (name === 'ARG') defaults.set(value.split('=')[0] as string, value.slice(value.indexOf('=') + 1));
    else if (name === 'FROM') {
      const [image = '', , stage] = value.split(/\s+/);
      stages.push({ name: stage, image, instructions: [] });
    } else stages.at(-1)?.instructions.push({ name, value });
  }
  return stages;
}

export interface Copy {
  /** The stage from which the instruction copies; undefined means the build context. */
  readonly from: string | undefined;
  readonly sources: readonly string[];
  readonly target: string;
}

export function listCopies({ instructions }: Stage): readonly Copy[] {
  return instructions
    .filter(({ name }) => name === 'COPY')
    .map(({ value }) => {
      const [, from] = /--from=(\S+)/.exec(value) ?? [];
      const paths = value.split(/\s+/).filter((word) => !word.startsWith('--'));
      return { from, sources: paths.slice(0, -1), target: paths.at(-1) as string };
    });
}
