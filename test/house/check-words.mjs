// House rule: errors come from the catalogue, settings from infra/config, SQL stays below the API, messages go to the
// log.
import { applyRules, codeOf, filesLike, textsOf } from './source-texts.mjs';

const files = filesLike(/^(schemas|infra|pipelines|api|web)\/.*\.(ts|tsx|mts|mjs|cjs)$/);

const codeRules = [
  {
    rule: 'errors are made by infra/errors alone',
    breaks: (text) => /\bnew (Aggregate|Eval|Range|Reference|Syntax|Type|URI)?Error \(|\bthrow new\b/.test(text),
    example: "throw new Error ( '' )",
    // The browser's form of error responses, and protocols that define their own error codes.
    exempt:
      /^(infra\/errors\/|web\/src\/api\/client\.ts$|api\/agent-server\/(a2a\/|mcp\.ts$|protocol\/)|api\/server\/mcp-|api\/tools\/)/,
  },
  {
    rule: 'only infra/config reads the environment',
    breaks: (text) => /\bprocess \??\. ?env\b|\{[^}]*\benv\b[^}]*\} = process\b/.test(text),
    example: 'const home = process . env . HOME',
    exempt: /^infra\/config\//,
  },
  {
    rule: 'only commands write to the console',
    breaks: (text) => /\bconsole \??\. ?\w+/.test(text),
    example: "console . log ( '' )",
    exempt: /^(api\/command-line|web\/build)\//,
  },
];
const textRules = [
  {
    rule: 'SQL is written below the API',
    breaks: (text) => /\b(SELECT|INSERT INTO|DELETE FROM|UPDATE \w+ SET|ALTER TABLE)\s/.test(text),
    example: 'SELECT 1',
    applies: /^api\//,
  },
];

const code = [];
const texts = [];
for (const file of files) {
  code.push(...codeOf(file));
  texts.push(...textsOf(file));
}
applyRules(codeRules, code);
applyRules(textRules, texts);
