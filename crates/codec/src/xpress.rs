//! MS_XPRESS: the LZ77+Huffman form of MS-XCA.
