import type { WriteStream } from 'node:tty';
import { type ExportWithProgress, shareDone } from '../../../pipelines/exports/queries.ts';
import { showExport } from '../../main/bulk-exports.ts';
import { printable } from '../print-table.ts';
import { progressBar, progressWords } from './progress-line.ts';

/** Output of `runlake export watch`. */
export interface WatchScreen {
  show(of: ExportWithProgress, now: Date): void;
  /** Prints a line that is not overwritten. */
  note(line: string): void;
  end(lines: readonly string[]): void;
}

type Output = Pick<NodeJS.WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const clearLine = '\r\x1b[K';
const plainEveryMs = 10_000;

/**
 * Opens the output: a progress bar on a terminal; otherwise a line for each 10 % of progress, each change of status and
 * every ten seconds; with `json` one object per change.
 */
export function openScreen(output: Output, json: boolean): WatchScreen {
  if (json) return jsonScreen(output);
  return output.isTTY === true ? barScreen(output) : plainScreen(output);
}

function barScreen(output: Output): WatchScreen {
  return {
    // One column stays free because some terminals wrap a full line. Some terminals report no width or 0.
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
      // Rate and time left change constantly; they are printed only together with another change.
      const facts = JSON.stringify(of);
      if (facts === before) return;
      before = facts;
      output.write(`${JSON.stringify(showExport(of, now))}\n`);
    },
    note: () => undefined,
    end: () => undefined,
  };
}
