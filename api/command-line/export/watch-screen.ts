import type { WriteStream } from 'node:tty';
import { type ExportWithProgress, shareDone } from '../../../pipelines/exports/read-export.ts';
import { showExport } from '../../main/bulk-exports/bulk-export-schema.ts';
import { printable } from '../print-table.ts';
import { progressBar, progressWords } from './progress-line.ts';

/** Where somebody watches an export. */
export interface WatchScreen {
  show(of: ExportWithProgress, now: Date): void;
  /** A line that stays. */
  note(line: string): void;
  end(lines: readonly string[]): void;
}

type Output = Pick<NodeJS.WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const clearLine = '\r\x1b[K';
const plainEveryMs = 10_000;

/** A bar that moves on a terminal; else a line at each tenth, at each change of status, and every ten seconds; or JSON for programs. */
export function openScreen(output: Output, json: boolean): WatchScreen {
  if (json) return jsonScreen(output);
  return output.isTTY === true ? barScreen(output) : plainScreen(output);
}

function barScreen(output: Output): WatchScreen {
  return {
    // One cell is left free: a full line would make some terminals begin another. Some tell no width, or 0.
    show: (of, now) => output.write(`${clearLine}${printable(progressBar(of, now, (output.columns || 80) - 1))}`),
    note: (line) => output.write(`${clearLine}${printable(line)}\n`),
    end: (lines) => output.write(`\n${lines.join('\n')}\n`),
  };
}

function plainScreen(output: Output): WatchScreen {
  let before = '';
  let saidMs = 0;
  return {
    show: (of, now) => {
      const step = `${of.status} ${of.statusReason} ${Math.floor(shareDone(of) * 10)}`;
      if (step === before && now.getTime() - saidMs < plainEveryMs) return;
      before = step;
      saidMs = now.getTime();
      output.write(`${printable(progressWords(of, now))}\n`);
    },
    note: (line) => output.write(`${printable(line)}\n`),
    end: (lines) => output.write(`${lines.join('\n')}\n`),
  };
}

function jsonScreen(output: Output): WatchScreen {
  let before = '';
  return {
    show: (of, now) => {
      // Pace and time left change all the time; they are told along with what else changes.
      const facts = JSON.stringify(of);
      if (facts === before) return;
      before = facts;
      output.write(`${JSON.stringify(showExport(of, now))}\n`);
    },
    note: () => undefined,
    end: () => undefined,
  };
}
