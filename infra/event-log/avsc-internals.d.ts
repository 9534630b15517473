declare module 'avsc/lib/utils.js';
