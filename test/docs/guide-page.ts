/** A parsed page of docs/guide: its fenced blocks, and the programs that they form. */

export type RunnableLanguage = 'sh' | 'ts' | 'python';

/**
 * Kind of a block. `s3`: the block runs only if the native stack has an S3 store. `server`: the block keeps its
 * terminal until the next `server` block or the end of the page; all other blocks run in a second terminal.
 */
export type StepKind = 's3' | 'server';

export interface GuideBlock {
  readonly code: string;
  /** Line of the page on which the code starts, counted from 1. */
  readonly line: number;
  /** The `text` block that follows: the output of the code. `…` stands for any text. */
  readonly output?: string;
}

/** What runs in one process: a `sh` block, or consecutive blocks of the other languages. */
export interface GuideStep {
  readonly language: RunnableLanguage;
  readonly kind?: StepKind;
  readonly blocks: readonly GuideBlock[];
}

export interface GuidePage {
  readonly steps: readonly GuideStep[];
  /** Violations of the rules of docs/guide/README.md, each with its line. */
  readonly problems: readonly string[];
}

const runnable: readonly string[] = ['sh', 'ts', 'python'];
const fence = /^```(.*)$/;

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

interface OpenStep {
  readonly language: RunnableLanguage;
  readonly kind?: StepKind;
  readonly blocks: (Omit<GuideBlock, 'output'> & { output?: string })[];
}

export function parseGuidePage(text: string): GuidePage {
  const lines = text.split('\n');
  const problems: string[] = [];
  const steps: OpenStep[] = [];
  let previous: 'runnable' | 'other' | undefined;
  for (let at = 0; at < lines.length; at += 1) {
    const opening = lines[at] ?? '';
    const here = `line ${at + 1}`;
    if (/^\s+```|^\s*~~~/.test(opening))
      problems.push(`${here}: a fence must be three backticks at the start of a line`);
    const info = fence.exec(opening)?.[1];
    if (info === undefined) continue;
    const end = lines.findIndex((line, index) => index > at && /^```\s*$/.test(line));
    if (end < 0) {
      problems.push(`${here}: the fence is not closed`);
      break;
    }
    const code = `${lines.slice(at + 1, end).join('\n')}\n`;
    const line = at + 2;
    at = end;
    const [language = '', ...words] = info.trim().split(/\s+/);
    if (language === 'text') {
      const last = steps.at(-1)?.blocks.at(-1);
      if (words.length > 0) problems.push(`${here}: unknown word '${words[0]}'`);
      if (previous !== 'runnable' || last === undefined || last.output !== undefined)
        problems.push(`${here}: a text block must follow the runnable block whose output it shows`);
      else last.output = code;
    } else if (language === 'json') {
      if (!isJson(code)) problems.push(`${here}: the block is not valid JSON`);
    } else if (!runnable.includes(language)) {
      problems.push(`${here}: unknown language '${language}'`);
    } else if (words.length > 1 || !['no-run', 's3', 'server', undefined].includes(words[0])) {
      problems.push(`${here}: unknown words '${words.join(' ')}'`);
    } else if (words[0] === 'no-run') {
      previous = 'other';
      if (!/The tests do not run this block[^.]*: /.test(proseBefore(lines, line - 2)))
        problems.push(`${here}: the paragraph before it must say 'The tests do not run this block: ' and the reason`);
    } else {
      const kind = words[0] as StepKind | undefined;
      const step = { language: language as RunnableLanguage, ...(kind && { kind }) };
      const last = steps.at(-1);
      const isContinuation = language !== 'sh' && last?.language === language && last.kind === step.kind;
      if (isContinuation) last.blocks.push({ code, line });
      else steps.push({ ...step, blocks: [{ code, line }] });
      previous = 'runnable';
    }
  }
  if (steps.length === 0) problems.push('the page has no runnable block');
  return { steps, problems };
}

/** Returns the paragraph that ends before the line at this index, as one line. */
function proseBefore(lines: readonly string[], index: number): string {
  const paragraph: string[] = [];
  let at = index - 1;
  while (lines[at]?.trim() === '') at -= 1;
  for (; lines[at]?.trim(); at -= 1) paragraph.unshift(lines[at] as string);
  return paragraph.join(' ');
}

/** Marks the end of the output of a block within the output of its step. */
export const endOfBlock = '\u0001end of block\u0001';

const printMark: Record<RunnableLanguage, string> = {
  sh: '',
  ts: `process.stdout.write('${endOfBlock}');`,
  python: `print('${endOfBlock}', end='', flush=True)`,
};

/**
 * Returns the program of a step. Empty lines keep the line numbers of the page, so that errors refer to lines of the
 * page.
 */
export function programText({ language, blocks }: GuideStep): string {
  let text = '';
  let line = 1;
  for (const block of blocks) {
    const program = `${'\n'.repeat(block.line - line)}${block.code}${printMark[language]}\n`;
    text += program;
    line += program.split('\n').length - 1;
  }
  return text;
}

/**
 * Returns whether `output` matches a text block: `…` stands for any text in its line, or, alone on a line, for any
 * lines.
 */
export function isOutput(output: string, shown: string): boolean {
  const trimmed = (text: string) => text.replace(/[ \t\r]+$/gm, '').trimEnd();
  const escaped = (line: string) => line.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('…', '.*?');
  const lines = trimmed(shown).split('\n');
  const pattern = lines.map((line) => (line === '…' ? '(?:.*\n)*?' : `${escaped(line)}\n`)).join('');
  return new RegExp(`^${pattern}$`).test(`${trimmed(output)}\n`);
}
