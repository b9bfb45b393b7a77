// Real Caffe computes a net: caffe_forward PROTOTXT WEIGHTS|- SAVED|- INPUT.bin... -> one line a top: name, dims, then values as %.9g
#include <cstdio>
#include <fstream>
#include <iostream>
#include "caffe/net.hpp"
#include "caffe/util/io.hpp"
using namespace caffe;
int main(int n, char** a) {
  FLAGS_minloglevel = 2;
  Net<float> net(a[1], TEST);
  if (a[2][0] != '-') net.CopyTrainedLayersFromBinaryProto(a[2]);
  if (a[3][0] != '-') { NetParameter p; net.ToProto(&p, false); WriteProtoToBinaryFile(p, a[3]); }
  for (int i = 4; i < n; ++i) {
    Blob<float>* b = net.input_blobs()[i - 4];
    std::ifstream f(a[i], std::ios::binary);
    f.read((char*)b->mutable_cpu_data(), b->count() * 4);
    if (!f) return 3;
  }
  net.Forward();
  for (size_t i = 0; i < net.output_blobs().size(); ++i) {
    const Blob<float>* b = net.output_blobs()[i];
    printf("%s", net.blob_names()[net.output_blob_indices()[i]].c_str());
    for (int k = 0; k < b->num_axes(); ++k) printf(" %d", b->shape(k));
    printf("\n");
    for (int k = 0; k < b->count(); ++k) printf("%.9g ", b->cpu_data()[k]);
    printf("\n");
  }
}
